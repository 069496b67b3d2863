/** A job's curves, bucketed by the control plane: whole, or a range of their steps. */

import { get, type Schema } from "./http";

/** The API's names of them. */
export const SERIES = ["loss", "tokens_per_s", "mfu", "grad_norm", "lr", "loss_scale"] as const;

export type SeriesName = (typeof SERIES)[number];

/** One step; numbers that it did not have are null. */
export interface Point {
  step: number;
  values: Readonly<Record<SeriesName, number | null>>;
}

export interface Value {
  low: number;
  high: number;
  mean: number;
  /** How many steps are in the mean. */
  count: number;
}

/** Bucket `place` has the steps from `place` · width + 1 on. */
export interface Bucket {
  place: number;
  values: Readonly<Partial<Record<SeriesName, Value>>>;
}

export interface Curve {
  /** Steps of a bucket. */
  width: number;
  /** In order; places without a step are left out. */
  buckets: readonly Bucket[];
  /** The last step itself, which shares its bucket with others. */
  end: Point | null;
}

/** A point to be drawn: at the middle of its bucket's steps, `from` the first `to` the last; null where the bucket has no such number. */
export interface Drawn {
  x: number;
  from?: number;
  to?: number;
  y: number | null;
  low: number | null;
  high: number | null;
}

/** Validation loss at a step, in nats per token. */
export interface Eval {
  step: number;
  loss: number | null;
}

export interface Curves {
  curve: Curve;
  evals: Eval[];
  /** Position of the last event of which the validations are. The stream repeats events up to it. */
  position: number;
  /** A stream that starts after it has the newest events, and the steps that are not in the curve. */
  cursor: string;
}

/** From the first to the last step that are meant. */
export type Range = readonly [from: number, to: number];

/** A chart is some hundred columns wide; the answer is below 100 kB. */
const BUCKETS = 400;

export type StepWire = Pick<Schema<"Step">, "step"> & Partial<Schema<"Step">>;

export function toPoint(wire: StepWire): Point {
  const values = Object.fromEntries(SERIES.map((name) => [name, wire[name] ?? null])) as Record<SeriesName, number | null>;
  return { step: wire.step, values };
}

/** The stream repeats at most this many events. Older ones are in the history, incidents and checkpoints. */
const EVENTS = 500;

/** A cursor is `events.steps.logs`, three positions; steps continue after the curve. */
export function afterCurve(cursor: string): string {
  const [events = 0, steps = 0] = cursor.split(".").map(Number);
  return `${Math.max(0, events - EVENTS)}.${steps}.0`;
}

export const toCurve = (wire: Pick<Schema<"Curves">, "width" | "starts" | "series" | "last_step" | "end">): Curve => ({
  width: wire.width,
  end: wire.end === 0 ? null : toPoint({ step: wire.end, ...Object.fromEntries(SERIES.map((name) => [name, wire.series[name]?.last ?? null])) }),
  buckets: wire.starts.map((start, at): Bucket => {
    const count = Math.max(1, Math.min(wire.width, wire.last_step - start + 1));
    const values: Partial<Record<SeriesName, Value>> = {};
    for (const name of SERIES) {
      const series = wire.series[name];
      const mean = series?.mean[at] ?? null;
      if (series && mean !== null) values[name] = { mean, low: series.low?.[at] ?? mean, high: series.high?.[at] ?? mean, count };
    }
    return { place: (start - 1) / wire.width, values };
  }),
});

/** The first step is 1; logged metrics, which share their range with a training's charts, may begin at 0. Raises `Problem`. */
export async function getCurves(id: string, range: readonly [number, number | null] | null, signal?: AbortSignal): Promise<Curves> {
  const query = { names: SERIES.join(","), buckets: BUCKETS, from: Math.max(1, range?.[0] ?? 1), to: range?.[1] ?? null };
  const wire = await get("/v1/jobs/{job}/curves", { path: { job: id }, query, signal });
  const evals = wire.evals.map(({ step, loss }) => ({ step, loss }));
  return { curve: toCurve(wire), evals, position: Number(wire.cursor.split(".")[0]), cursor: afterCurve(wire.cursor) };
}
