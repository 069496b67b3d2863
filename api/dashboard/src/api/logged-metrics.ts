/** Metrics that a job's program logs: their names, and curves of some of them. */

import type { Drawn, Range } from "./curves";
import { get } from "./http";

export interface LoggedMetric {
  name: string;
  lastStep: number;
  last: number | null;
}

export interface LoggedCurve {
  points: readonly Drawn[];
  /** Points have extremes that differ from the mean. */
  band: boolean;
}

/** The API's limit of one answer. */
const AT_ONCE = 24;
/** A job has at most as many. */
const NAMES = 1000;
/** A chart is some hundred columns wide. */
const BUCKETS = 400;

/** All of a job, in order of their names. Raises `Problem`. */
export async function getLoggedMetrics(id: string, signal?: AbortSignal): Promise<readonly LoggedMetric[]> {
  const { items } = await get("/v1/jobs/{job}/logged-metrics", { path: { job: id }, query: { limit: NAMES }, signal });
  return items.map(({ name, last, last_step }) => ({ name, last, lastStep: last_step }));
}

/** Name → curve. Raises `Problem`. */
export async function getLoggedCurves(id: string, names: readonly string[], range: Range | null, signal?: AbortSignal): Promise<ReadonlyMap<string, LoggedCurve>> {
  const parts = Array.from({ length: Math.ceil(names.length / AT_ONCE) }, (_, at) => names.slice(at * AT_ONCE, (at + 1) * AT_ONCE));
  const maps = await Promise.all(parts.map((part) => getPart(id, part, range, signal)));
  return new Map(maps.flat());
}

async function getPart(id: string, names: readonly string[], range: Range | null, signal: AbortSignal | undefined): Promise<[string, LoggedCurve][]> {
  const query = { name: [...names], buckets: BUCKETS, from: range?.[0] ?? 0, to: range?.[1] ?? null };
  const { series } = await get("/v1/jobs/{job}/logged-curves", { path: { job: id }, query, signal });
  return Object.entries(series).map(([name, { width, starts, mean, low, high }]) => [
    name,
    {
      band: low !== null,
      points: starts.map((start, at) => {
        const y = mean[at] ?? null;
        const span = width > 1 ? { from: start, to: start + width - 1 } : {};
        return { x: start + (width - 1) / 2, ...span, y, low: low?.[at] ?? y, high: high?.[at] ?? y };
      }),
    },
  ]);
}
