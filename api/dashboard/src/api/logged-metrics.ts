/** Metrics that a job's program logs: their names, and curves of some of them. */

import type { Drawn, Range } from "./curves";
import { get } from "./http";

export interface LoggedMetric {
  name: string;
  lastStep: number;
  last: number | null;
}

/** The newest value of a metric, and the extremes of all; null where there is none that is finite. */
export interface LoggedValues {
  last: number | null;
  lowest: number | null;
  highest: number | null;
}

/** A name under which some of several jobs logged a metric. */
export interface LoggedName {
  name: string;
  lastStep: number;
}

export interface LoggedCurve {
  /** The newest value of the whole metric; null if it is not finite. */
  last: number | null;
  points: readonly Drawn[];
  /** Points have extremes that differ from the mean. */
  band: boolean;
}

/** The API's limits of one answer: curves, jobs of names and values, and values of a job. */
const AT_ONCE = 24;
const JOBS = 200;
const VALUES = 16;
/** A job has at most as many. */
const NAMES = 1000;
/** A chart is some hundred columns wide. */
const BUCKETS = 400;

/** All of a job, in order of their names. Raises `Problem`. */
export async function getLoggedMetrics(id: string, signal?: AbortSignal): Promise<readonly LoggedMetric[]> {
  const { items } = await get("/v1/jobs/{job}/logged-metrics", { path: { job: id }, query: { limit: NAMES }, signal });
  return items.map(({ name, last, last_step }) => ({ name, last, lastStep: last_step }));
}

/** Those that any of these jobs logged, the names of most jobs first. `more`: there are more with this text. Raises `Problem`. */
export async function getLoggedNames(jobs: readonly string[], text: string, signal?: AbortSignal): Promise<{ names: readonly LoggedName[]; more: boolean }> {
  const names = new Map<string, LoggedName>();
  let cut = false;
  for (const job of partsOf(jobs, JOBS)) {
    const { items, more } = await get("/v1/logged-names", { query: { job, text, limit: NAMES }, signal });
    for (const { name, last_step } of items) names.set(name, { name, lastStep: Math.max(last_step, names.get(name)?.lastStep ?? 0) });
    cut ||= more;
  }
  return { names: [...names.values()], more: cut };
}

/** Job → name → its values, of the jobs and metrics that there are. Raises `Problem`. */
export async function getLoggedValues(jobs: readonly string[], names: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, ReadonlyMap<string, LoggedValues>>> {
  const found = new Map<string, Map<string, LoggedValues>>();
  for (const job of partsOf(jobs, JOBS)) {
    for (const name of partsOf(names, VALUES)) {
      const { items } = await get("/v1/logged-values", { query: { job, name }, signal });
      for (const { job: id, values } of items) {
        const known = found.get(id) ?? new Map<string, LoggedValues>();
        for (const [key, { last, lowest, highest }] of Object.entries(values)) known.set(key, { last, lowest, highest });
        found.set(id, known);
      }
    }
  }
  return found;
}

const partsOf = (all: readonly string[], size: number): string[][] => Array.from({ length: Math.ceil(all.length / size) }, (_, at) => all.slice(at * size, (at + 1) * size));

/** Name → curve. Raises `Problem`. */
export async function getLoggedCurves(id: string, names: readonly string[], range: Range | null, signal?: AbortSignal, buckets = BUCKETS): Promise<ReadonlyMap<string, LoggedCurve>> {
  const maps = await Promise.all(partsOf(names, AT_ONCE).map((part) => getPart(id, part, range, buckets, signal)));
  return new Map(maps.flat());
}

async function getPart(id: string, name: string[], range: Range | null, buckets: number, signal: AbortSignal | undefined): Promise<[string, LoggedCurve][]> {
  const query = { name, buckets, from: range?.[0] ?? 0, to: range?.[1] ?? null };
  const { series } = await get("/v1/jobs/{job}/logged-curves", { path: { job: id }, query, signal });
  return Object.entries(series).map(([key, { width, starts, mean, low, high, last }]) => [
    key,
    {
      last,
      band: low !== null,
      points: starts.map((start, at) => {
        const y = mean[at] ?? null;
        const span = width > 1 ? { from: start, to: start + width - 1 } : {};
        return { x: start + (width - 1) / 2, ...span, y, low: low?.[at] ?? y, high: high?.[at] ?? y };
      }),
    },
  ]);
}
