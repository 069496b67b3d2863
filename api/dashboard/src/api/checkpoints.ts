/** The checkpoints that a job told of, and what a new job says that goes on from one. */

import { get, type Schema } from "./http";
import { PARENT, type Job } from "./jobs";

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

interface SpecLike {
  name: string;
  train: Readonly<Record<string, unknown>>;
  labels?: Readonly<Record<string, string>>;
}

/** The spec of a job that begins with what another one has: its own spec, or that and a checkpoint (a path) to go on from. */
export function childSpec(job: Job, checkpoint: string | null): unknown {
  const { name, train, labels, ...rest } = job.spec as SpecLike;
  // The parent may have restarted its data; its child goes on.
  const own = Object.fromEntries(Object.entries(train).filter(([key]) => key !== "resume_data"));
  const begun = { ...own, steps: stepsOf(Number(train.steps), checkpoint), resume_from: checkpoint };
  return { name: childName(name, checkpoint), labels: { ...labels, [PARENT]: job.id }, train: begun, ...rest };
}

/** A job that goes on from another's last step needs steps of its own: as many again. */
function stepsOf(steps: number, checkpoint: string | null): number {
  const done = Number(/step-(\d+)$/.exec(checkpoint ?? "")?.[1] ?? 0);
  return done >= steps ? done + steps : steps;
}

/** Names have at most 63 letters. */
const childName = (name: string, checkpoint: string | null) => {
  const end = checkpoint === null ? "-fork" : "-resumed";
  return `${name.slice(0, 63 - end.length)}${end}`;
};

/** New job, with such a spec to begin with. */
export function childAddress(job: string, checkpoint: string | null): string {
  const params = new URLSearchParams({ from: job });
  if (checkpoint !== null) params.set("checkpoint", checkpoint);
  return `/new?${params.toString()}`;
}

/** In a shell, where the storage can be read. */
export const exportCommand = (path: string) => `shardyard export ${quoted(path)} ./exported`;

const quoted = (path: string) => (/^[\w./:@-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
