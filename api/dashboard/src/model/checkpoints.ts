/** What a new job takes from another one, and the command that exports a checkpoint. */

import type { Job, PARENT_LABEL as ParentLabel } from "../api/jobs";

/** The compiler compares it with the API's. */
const PARENT_LABEL: typeof ParentLabel = "parent";

interface SpecLike {
  name: string;
  /** A job that runs a command has none. */
  train?: Readonly<Record<string, unknown>>;
  labels?: Readonly<Record<string, string>>;
}

/** Whether the job trains with Shardyard's own loop, and so has a layout. */
export const trains = (job: Job) => (job.spec as SpecLike).train !== undefined;

/** The spec of a job that is forked from `job`, or resumes from its `checkpoint` (a path). */
export function childSpec(job: Job, checkpoint: string | null): unknown {
  const { name, train, labels, ...rest } = job.spec as SpecLike;
  const child = { name: childName(name, checkpoint), labels: { ...labels, [PARENT_LABEL]: job.id } };
  if (train === undefined) return { ...child, ...rest, ...(checkpoint === null && !("resume_from" in rest) ? {} : { resume_from: checkpoint }) };
  // The parent may have restarted its data; its child continues with it.
  const own = Object.fromEntries(Object.entries(train).filter(([key]) => key !== "resume_data"));
  const begun = { ...own, steps: stepsOf(Number(train.steps), checkpoint), resume_from: checkpoint };
  return { ...child, train: begun, ...rest };
}

/** A job that resumes from the last step of another needs more steps: as many again. */
function stepsOf(steps: number, checkpoint: string | null): number {
  const done = Number(/step-(\d+)$/.exec(checkpoint ?? "")?.[1] ?? 0);
  return done >= steps ? done + steps : steps;
}

/** Names have at most 63 letters. */
const childName = (name: string, checkpoint: string | null) => {
  const end = checkpoint === null ? "-fork" : "-resumed";
  return `${name.slice(0, 63 - end.length)}${end}`;
};

/** In a shell, where the storage can be read. */
export const exportCommand = (path: string) => `shardyard export ${quoted(path)} ./exported`;

const quoted = (path: string) => (/^[\w./:@-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
