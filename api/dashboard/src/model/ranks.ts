/** Coordinates of ranks in the mesh, and formats and scales of their metrics. */

import type { Axis, Measure } from "../api/ranks";
import { bytes } from "./format";

/** Larger jobs have no samples (`workers/supervisor/rank_samples.py`). */
export const MOST_SAMPLED = 4096;

/** `pipeline 1 · data 0`: the axes that have more than one rank; empty where none has, or they are not known. */
export function coordinates(axes: readonly Axis[] | null, rank: number): string {
  let rest = rank;
  const parts: string[] = [];
  for (const { name, degree } of (axes ?? []).toReversed()) {
    if (degree > 1) parts.unshift(`${name} ${rest % degree}`);
    rest = Math.floor(rest / degree);
  }
  return parts.join(" · ");
}

export const MEASURE_NAMES: Readonly<Record<Measure, string>> = { compute: "Compute time", step: "Step time", wait: "Wait time", memory: "Memory" };

/** `52.3 ms`, `1.20 s`, `1.2 GiB`. */
export function formatMeasure(measure: Measure, value: number | null): string {
  if (value === null) return "–";
  if (measure === "memory") return bytes(value);
  return value < 1 ? `${digits(value * 1000)} ms` : `${digits(value)} s`;
}

/** Three digits. */
const digits = (value: number) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

export const LEVELS = 7;

export interface Scale {
  low: number;
  high: number;
  /** 0 to `LEVELS` − 1. */
  level: (value: number) => number;
}

/** Of the known values. It spans a tenth of the highest value at least, so that ranks which are about equal look so. */
export function scaleOf(values: readonly (number | null)[]): Scale | null {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  const high = known.reduce((a, b) => Math.max(a, b));
  const low = Math.min(known.reduce((a, b) => Math.min(a, b)), 0.9 * high);
  const span = high - low || 1;
  return { low, high, level: (value) => Math.min(LEVELS - 1, Math.floor(((value - low) / span) * LEVELS)) };
}

/** Of the values that are known. */
export function median(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null).toSorted((a, b) => a - b);
  const middle = known.length >> 1;
  const [below, above] = [known[middle - 1], known[middle]];
  if (above === undefined) return null;
  return known.length % 2 === 1 || below === undefined ? above : (below + above) / 2;
}
