/** A job's checkpoints. */

import { fill, get, type Schema } from "./http";

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

export interface CheckpointFile {
  path: string;
  bytes: number;
  /** Where its content is. */
  address: string;
}

/** Storage may be slow: `service/queries/storage_reads.py` gives up after 150 s. */
const STORAGE_MS = 160_000;

/** In order of their paths. Raises `Problem`. */
export async function listCheckpointFiles(job: string, step: number, after: string | null, signal?: AbortSignal): Promise<{ files: CheckpointFile[]; next: string | null }> {
  const { items, next } = await get("/v1/jobs/{job}/checkpoints/{step}/files", { path: { job, step }, query: { after, limit: 200 }, signal, timeoutMs: STORAGE_MS });
  const below = fill("/v1/jobs/{job}/checkpoints/{step}/files/", { path: { job, step } });
  return { files: items.map(({ path, bytes }) => ({ path, bytes, address: below + path.split("/").map(encodeURIComponent).join("/") })), next };
}
