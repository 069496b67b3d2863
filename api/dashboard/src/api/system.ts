/** What a job's nodes and ranks use, over time. */

import type { Drawn } from "./curves";
import { get } from "./http";

export interface SystemLine {
  /** `rank 3`, or the first digits of a node's id. */
  label: string;
  points: readonly Drawn[];
  last: number | null;
}

export interface SystemCurves {
  unit: string;
  /** Seconds of a bucket. */
  width: number;
  lines: readonly SystemLine[];
  /** Points have extremes that differ from the mean. */
  band: boolean;
  /** `after` of the next page; null on the last one. */
  next: string | null;
  /** All metrics that the job has. */
  metrics: readonly string[];
}

/** As on the page of the cluster. */
const SHORT_ID = 12;
/** Number of buckets, or of usual distances, without a sample after which a line is interrupted: the job was paused, or placed again. */
const GAP = 3;

/** One metric of up to 24 nodes or ranks after `after`. Raises `Problem`. */
export async function getSystem(job: string, name: string, after: string | null, signal?: AbortSignal): Promise<SystemCurves> {
  const { unit, width, starts, curves, next, metrics } = await get("/v1/jobs/{job}/system", { path: { job }, query: { name, after }, signal });
  return {
    unit,
    width,
    next,
    metrics: metrics.map((metric) => metric.name),
    band: curves.some(({ low }) => low !== null),
    lines: curves.map(({ node, rank, mean, low, high, last }) => ({
      label: rank === null ? (node ?? "").slice(0, SHORT_ID) : `rank ${rank}`,
      last,
      points: withGaps(starts.flatMap((start, at) => {
        const y = mean[at] ?? null; // null: a sample of another node or rank
        return y === null ? [] : [{ x: start + width / 2, y, low: low?.[at] ?? y, high: high?.[at] ?? y }];
      }), GAP * width),
    })),
  };
}

/** A point without a value where two points are further from each other than `most`, and than is usual among them: samples may be rare. */
export function withGaps(points: readonly Drawn[], most: number): readonly Drawn[] {
  const distances = points.slice(1).map(({ x }, at) => x - (points[at]?.x ?? x)).sort((a, b) => a - b);
  const usual = distances.length > 1 ? (distances[(distances.length - 1) >> 1] ?? 0) : 0; // one says nothing of others
  const far = Math.max(most, GAP * usual);
  return points.flatMap((point, at) => {
    const before = points[at - 1];
    return before !== undefined && point.x - before.x > far ? [{ x: before.x + far / 2, y: null, low: null, high: null }, point] : [point];
  });
}
