/** Groups of the jobs of a list: by their state, their user, or one of their labels. */

import type { Job } from "../api/jobs";

/** How a grouping is written in an address: `state`, `user`, or `label.` and the label's key. */
export type Grouping = string;

const LABEL = "label.";

export interface JobGroup {
  /** What its jobs have in common; null: they have no such label. */
  value: string | null;
  /** In the order of the list. */
  jobs: readonly Job[];
}

/** What an address says, if it is a grouping; otherwise none (empty). */
export const groupingOf = (text: string): Grouping => (text === "state" || text === "user" || (text.startsWith(LABEL) && text.length > LABEL.length) ? text : "");

/** In words: `by label team`. */
export const nameOf = (by: Grouping) => (by.startsWith(LABEL) ? `by label ${by.slice(LABEL.length)}` : `by ${by}`);

/** Those that these jobs can be grouped by, and `now`. */
export function groupings(jobs: readonly Job[], now: Grouping): readonly Grouping[] {
  const keys = jobs.flatMap(({ labels }) => Object.keys(labels).map((key) => LABEL + key));
  const labels = new Set(now.startsWith(LABEL) ? [...keys, now] : keys);
  return ["state", "user", ...[...labels].sort((a, b) => a.localeCompare(b))];
}

/** States in the order of `states`, other values by name; jobs without the label come last. */
export function grouped(jobs: readonly Job[], by: Grouping, states: readonly string[]): readonly JobGroup[] {
  const found = new Map<string | null, Job[]>();
  for (const job of jobs) {
    const value = valueOf(job, by);
    const others = found.get(value);
    if (others === undefined) found.set(value, [job]);
    else others.push(job);
  }
  const places = new Map(by === "state" ? states.map((state, at) => [state, at]) : []);
  const place = (value: string) => places.get(value) ?? places.size;
  return [...found].map(([value, members]) => ({ value, jobs: members })).sort(({ value: a }, { value: b }) => {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return place(a) - place(b) || a.localeCompare(b, undefined, { numeric: true });
  });
}

function valueOf(job: Job, by: Grouping): string | null {
  if (by === "state") return job.state;
  if (by === "user") return job.user;
  const key = by.slice(LABEL.length);
  return Object.hasOwn(job.labels, key) ? (job.labels[key] ?? null) : null;
}
