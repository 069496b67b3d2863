/** What a new job takes from another one, and the command that exports a checkpoint. */

import type { Job, PARENT_LABEL as ParentLabel } from "../api/jobs";

/** The compiler compares it with the API's. */
const PARENT_LABEL: typeof ParentLabel = "parent";
/** Of a spec. */
const MOST_LABELS = 64;
/** Labels by which a trial's job belongs to its sweep begin with it. */
const OF_SWEEP = "shardyard/";
/** A version of a model. A stored spec has its number, which no alias moves. */
const VERSION = /^models\/[a-z0-9-]+(@[a-z0-9-]+)?$/;

type Mapping = Readonly<Record<string, unknown>>;
type Labels = Readonly<Record<string, string>>;

interface SpecLike {
  name: string;
  /** A job that runs a command has none. */
  train?: Mapping;
  labels?: Labels;
}

/** Whether the job trains with Shardyard's own loop, and so has a layout. */
export const trains = (job: Job) => (job.spec as SpecLike).train !== undefined;

/** The spec of a job that is forked from `job`, which began with the checkpoint `resume`, or that resumes from its `checkpoint` (paths). */
export function childSpec(job: Job, checkpoint: string | null, resume: string | null): unknown {
  const { name, train, labels = {}, ...rest } = job.spec as SpecLike;
  const child = { name: childName(name, checkpoint), labels: childLabels(labels, job.id) };
  const begun = (part: Mapping) => (checkpoint === null ? beginning(part, resume) : resumed(part, checkpoint));
  if (train === undefined) return { ...child, ...begun(rest) };
  return { ...child, train: { ...begun(ownLayout(train)), steps: stepsOf(Number(train.steps), checkpoint) }, ...rest };
}

/** The layout is the user's own from here on, though the layout advisor chose it: what is changed in it counts. */
function ownLayout({ layout, ...train }: Mapping): Mapping {
  return layout === undefined ? train : { ...train, layout: filtered(layout as Mapping, (key) => key !== "auto") };
}

/** A fork begins where its parent did, as a clone does: the name of a job may be that of a newer one by now. */
function beginning(part: Mapping, resume: string | null): Mapping {
  const stored = part.resume_from;
  if (resume === null || typeof stored !== "string" || VERSION.test(stored)) return part;
  return { ...part, resume_from: resume };
}

/** The parent may have restarted its data; its child continues with it. */
const resumed = (part: Mapping, checkpoint: string): Mapping =>
  ({ ...filtered(part, (key) => key !== "resume_data"), resume_from: checkpoint });

/** Without those of a sweep, and with the parent where there is room. */
function childLabels(labels: Labels, parent: string): Labels {
  const own = filtered(labels, (key) => !key.startsWith(OF_SWEEP));
  const all = { ...own, [PARENT_LABEL]: parent };
  return Object.keys(all).length > MOST_LABELS ? own : all;
}

const filtered = <Value>(mapping: Readonly<Record<string, Value>>, keep: (key: string) => boolean) =>
  Object.fromEntries(Object.entries(mapping).filter(([key]) => keep(key)));

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
