/** A job with its steps and validations, to be compared with others. */

import { get } from "./http";
import { type Job, toJob } from "./jobs";

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

/** Steps of each run, at most: a screen shows no more. A response then has about 200 kB. */
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

/** Tokens after a step, from those of another step: each step takes equally many. */
function tokensAt(points: readonly RunPoint[], step: number): number | null {
  const known = points.find((point) => point.tokens !== null && point.step >= step) ?? points.findLast((point) => point.tokens !== null);
  return known?.tokens == null ? null : (known.tokens / known.step) * step;
}
