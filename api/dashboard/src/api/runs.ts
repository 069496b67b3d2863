/** A job with its steps, to be compared with others. */

import { type Curve, type Eval, getCurves } from "./curves";
import { get } from "./http";
import { getJob, type Job, toJob } from "./jobs";

export interface RunPoint {
  step: number;
  /** Since the job's start. */
  seconds: number | null;
  tokens: number | null;
}

export interface Run {
  job: Job;
  points: readonly RunPoint[];
}

/** A job with the curves of all that it reported itself; empty ones of a program. */
export interface RunCurves {
  job: Job;
  curve: Curve;
  evals: readonly Eval[];
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
  return { job, points: metrics.points.map((point) => ({ step: point.step, seconds: since(point.ts), tokens: point.tokens ?? null })) };
}

/** The job first: curves that are read after its end are whole. Raises `Problem`. */
export async function getRunCurves(id: string, signal?: AbortSignal): Promise<RunCurves> {
  const job = await getJob(id, signal);
  const { curve, evals } = await getCurves(id, null, signal);
  return { job, curve, evals };
}
