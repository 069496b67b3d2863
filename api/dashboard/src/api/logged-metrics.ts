/** Metrics that a job's program logs: their names, and curves of some of them. */

import type { Drawn, Range } from "./curves";
import { get } from "./http";

export interface LoggedMetric {
  name: string;
  lastStep: number;
  last: number | null;
}

export interface LoggedMetrics {
  items: readonly LoggedMetric[];
  /** There are more of them. */
  more: boolean;
}

export interface LoggedCurve {
  points: readonly Drawn[];
  /** Points have extremes that differ from the mean. */
  band: boolean;
}

/** The API's limit of one answer. */
export const MOST_CURVES = 24;
const NAMES = 500;
/** A chart is some hundred columns wide. */
const BUCKETS = 400;

/** Those whose name contains the text, in order of their names. Raises `Problem`. */
export async function getLoggedMetrics(id: string, text: string, signal?: AbortSignal): Promise<LoggedMetrics> {
  const { items, next } = await get("/v1/jobs/{job}/logged-metrics", { path: { job: id }, query: { text: text === "" ? null : text, limit: NAMES }, signal });
  return { items: items.map(({ name, last, last_step }) => ({ name, last, lastStep: last_step })), more: next !== null };
}

/** Name → curve, of at most `MOST_CURVES` names. Raises `Problem`. */
export async function getLoggedCurves(id: string, names: readonly string[], range: Range | null, signal?: AbortSignal): Promise<ReadonlyMap<string, LoggedCurve>> {
  const query = { name: [...names], buckets: BUCKETS, from: range?.[0] ?? 0, to: range?.[1] ?? null };
  const { series } = await get("/v1/jobs/{job}/logged-curves", { path: { job: id }, query, signal });
  return new Map(
    Object.entries(series).map(([name, { width, starts, mean, low, high }]) => [
      name,
      {
        band: low !== null,
        points: starts.map((start, at) => {
          const y = mean[at] ?? null;
          const span = width > 1 ? { from: start, to: start + width - 1 } : {};
          return { x: start + (width - 1) / 2, ...span, y, low: low?.[at] ?? y, high: high?.[at] ?? y };
        }),
      },
    ]),
  );
}
