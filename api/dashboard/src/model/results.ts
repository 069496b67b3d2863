/** What the table of a comparison has of each run: values of a metric, and their differences to the baseline's. */

import type { Curve, Drawn, Eval } from "../api/curves";
import type { LoggedCurve } from "../api/logged-metrics";
import { along } from "./curve";
import { loss, number } from "./format";
import { TRAINING_CHARTS } from "./training-charts";

export const RESULTS = ["last", "lowest", "highest"] as const;

export type ResultKind = (typeof RESULTS)[number];

export type Result = Readonly<Record<ResultKind, number | null>>;

const NONE: Result = { last: null, lowest: null, highest: null };

/** What a training reported, and what any job logged: the beginnings of the paths of metrics. */
const TRAINING = "training.";
const LOGGED = "metric.";

export const VALIDATION = `${TRAINING}validation`;

export const loggedPath = (name: string) => LOGGED + name;

/** The name of a logged metric; null for what a training reported. */
export const loggedName = (path: string) => (path.startsWith(LOGGED) ? path.slice(LOGGED.length) : null);

const chartOf = (path: string) => TRAINING_CHARTS.find(({ name }) => TRAINING + name === path);

/** A column's head. */
export function headOf(path: string): string {
  if (path === VALIDATION) return "Validation";
  return loggedName(path) ?? (path === `${TRAINING}loss` ? "Loss" : chartOf(path)?.label ?? path);
}

export const formatOf = (path: string) => (path === VALIDATION ? loss : chartOf(path)?.format ?? number);

export interface RunResults {
  curve: Curve;
  evals: readonly Eval[];
  /** Name → curve, of the logged metrics that are read. */
  logged: ReadonlyMap<string, LoggedCurve>;
}

export function resultOf({ curve, evals, logged }: RunResults, path: string): Result {
  if (path === VALIDATION) return summed(evals.map(({ step, loss: y }) => ({ x: step, y, low: y, high: y })));
  const name = loggedName(path);
  if (name !== null) {
    const known = logged.get(name);
    return known ? { ...summed(known.points), last: known.last } : NONE;
  }
  const chart = chartOf(path);
  return chart ? summed(along(curve, chart.name)) : NONE;
}

function summed(points: readonly Drawn[]): Result {
  const known = points.filter(({ y }) => y !== null);
  if (known.length === 0) return NONE;
  const lows = known.flatMap(({ low }) => low ?? []);
  const highs = known.flatMap(({ high }) => high ?? []);
  return { last: known.at(-1)?.y ?? null, lowest: Math.min(...lows), highest: Math.max(...highs) };
}

/** The metrics of the trainings among runs. */
export const trainingPaths = (runs: readonly Pick<RunResults, "curve" | "evals">[]): string[] => [
  ...TRAINING_CHARTS.filter(({ name }) => runs.some(({ curve }) => curve.buckets.some(({ values }) => values[name] !== undefined))).map(({ name }) => TRAINING + name),
  ...(runs.some(({ evals }) => evals.length > 0) ? [VALIDATION] : []),
];

/** Those that a table has until others are chosen: the main ones of trainings, and some that most runs logged. */
export function usualPaths(trained: readonly string[], logged: readonly string[]): string[] {
  const main = [`${TRAINING}loss`, VALIDATION, `${TRAINING}tokens_per_s`];
  return [...main.filter((path) => trained.includes(path)), ...logged.slice(0, MOST_LOGGED).map(loggedPath)];
}

const MOST_LOGGED = 4;

/** `+0.2 (+25.0 %)`: by how much a value is above the baseline's; null where either is not there. */
export function deltaText(value: number | null, base: number | null): string | null {
  if (value === null || base === null) return null;
  const above = value - base;
  const signed = (text: string) => (above < 0 ? text : `+${text}`);
  return signed(number(above)) + (base === 0 ? "" : ` (${signed(`${((above / Math.abs(base)) * 100).toFixed(1)} %`)})`);
}
