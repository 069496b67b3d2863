/** A job's checkpoints. */

import { get, type Schema } from "./http";

export type Checkpoint = Schema<"Checkpoint">;

export interface CheckpointPage {
  checkpoints: readonly Checkpoint[];
  /** The place before which the next page begins. */
  next: number | null;
}

/** Newest first. Raises `Problem`. */
export async function listCheckpoints(id: string, before: number | null, limit: number, signal?: AbortSignal): Promise<CheckpointPage> {
  const { items, next } = await get("/v1/jobs/{job}/checkpoints", { path: { job: id }, query: { before, limit }, signal });
  return { checkpoints: items, next };
}
