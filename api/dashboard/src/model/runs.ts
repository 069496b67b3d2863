/** Runs side by side: what is compared of a job, against what, and where two specs differ. */

import { get } from "../api/http";
import { toJob, type Job } from "../api/jobs";

export interface RunPoint {
  step: number;
  /** Since the job's start. */
  seconds: number | null;
  tokens: number | null;
  loss: number | null;
  tokensPerSecond: number | null;
}

export interface Run {
  job: Job;
  points: readonly RunPoint[];
  /** Losses of validations, at the numbers of the steps after which they were made. */
  validations: readonly RunPoint[];
}

/** So many steps of each run are drawn; with their extremes, a screen shows no more. An answer is then some 200 kB. */
const POINTS = 600;

/** Raises `Problem`. */
export async function getRun(id: string, signal?: AbortSignal): Promise<Run> {
  const path = { job: id };
  const [wire, metrics] = await Promise.all([
    get("/v1/jobs/{job}", { path, signal }),
    get("/v1/jobs/{job}/metrics", { path, query: { max_points: POINTS }, signal }),
  ]);
  const job = toJob(wire);
  const begun = job.startedAt === null ? null : job.startedAt.getTime() / 1000;
  const since = (ts: number | null | undefined) => (begun === null || ts === null || ts === undefined ? null : ts - begun);
  const points = metrics.points.map((point) => ({
    step: point.step,
    seconds: since(point.ts),
    tokens: point.tokens ?? null,
    loss: point.loss ?? null,
    tokensPerSecond: point.tokens_per_s ?? null,
  }));
  const validations = metrics.evals.map((one) => ({
    step: one.step,
    seconds: since(one.ts),
    tokens: tokensAt(points, one.step),
    loss: one.loss ?? null,
    tokensPerSecond: null,
  }));
  return { job, points, validations };
}

/** Tokens after a step: each step takes equally many, so those of any other step tell it. */
function tokensAt(points: readonly RunPoint[], step: number): number | null {
  const known = points.find((point) => point.tokens !== null && point.step >= step) ?? points.findLast((point) => point.tokens !== null);
  return known?.tokens == null ? null : (known.tokens / known.step) * step;
}

export const AXES = ["step", "tokens", "time"] as const;

export type Axis = (typeof AXES)[number];

const along: Readonly<Record<Axis, (point: RunPoint) => number | null>> = {
  step: (point) => point.step,
  tokens: (point) => point.tokens,
  time: (point) => point.seconds,
};

/** Points of one number along an axis, in its order; what has no place on it is left out. */
export function line(points: readonly RunPoint[], axis: Axis, of: (point: RunPoint) => number | null): { x: number; y: number | null }[] {
  const placed = points.flatMap((point) => {
    const x = along[axis](point);
    return x === null ? [] : [{ x, y: of(point) }];
  });
  // A step that was trained again after a fault is later than those before it; a clock may have been set back.
  placed.sort((a, b) => a.x - b.x);
  return placed.filter((point, index) => point.x !== placed[index - 1]?.x);
}

export interface Difference {
  field: string;
  /** As JSON, one per spec; null where a spec does not have the field. */
  values: readonly (string | null)[];
}

/** The fields in which specs differ, in the order of the first spec that has them. */
export function differences(specs: readonly unknown[]): Difference[] {
  const flat = specs.map((spec) => new Map(leaves(spec, "")));
  const fields = new Set(flat.flatMap((one) => [...one.keys()]));
  return [...fields]
    .map((field) => ({ field, values: flat.map((one) => one.get(field) ?? null) }))
    .filter(({ values }) => new Set(values).size > 1);
}

function leaves(value: unknown, field: string): [string, string][] {
  const inner = typeof value === "object" && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
  if (inner.length === 0) return [[field, typeof value === "string" ? value : JSON.stringify(value)]];
  return inner.flatMap(([key, below]) => leaves(below, field === "" ? key : `${field}.${key}`));
}
