/** A job's curves, bucketed by the control plane: whole, or a range of their steps. */

import { SERIES, type Bucket, type Curve, type Name, type Point, type Value } from "../model/curve";
import { get, type Schema } from "./http";

/** Validation loss at a step, in nats per token. */
export interface Eval {
  step: number;
  loss: number | null;
}

export interface Curves {
  curve: Curve;
  evals: Eval[];
  /** An event stream after it tells the newest events, and of the steps those that are not in the curve. */
  cursor: string;
}

/** From the first to the last step that are meant. */
export type Range = readonly [from: number, to: number];

/** A chart is some hundred columns wide; the answer is below 100 kB. */
const BUCKETS = 400;

export type StepWire = Pick<Schema<"Step">, "step"> & Partial<Schema<"Step">>;

export function toPoint(wire: StepWire): Point {
  const values = Object.fromEntries(SERIES.map((name) => [name, wire[name] ?? null])) as Record<Name, number | null>;
  return { step: wire.step, values };
}

/** So many of a job's events are told again: what is older is in its story, incidents and checkpoints. */
const EVENTS = 500;

/** A cursor is `events.steps.logs`, three positions; steps go on after the curve. */
export function afterCurve(cursor: string): string {
  const [events = 0, steps = 0] = cursor.split(".").map(Number);
  return `${Math.max(0, events - EVENTS)}.${steps}.0`;
}

export const toCurve = (wire: Pick<Schema<"Curves">, "width" | "starts" | "series" | "last_step" | "end">): Curve => ({
  width: wire.width,
  end: wire.end === 0 ? null : toPoint({ step: wire.end, ...Object.fromEntries(SERIES.map((name) => [name, wire.series[name]?.last ?? null])) }),
  buckets: wire.starts.map((start, at): Bucket => {
    const count = Math.max(1, Math.min(wire.width, wire.last_step - start + 1));
    const values: Partial<Record<Name, Value>> = {};
    for (const name of SERIES) {
      const series = wire.series[name];
      const mean = series?.mean[at] ?? null;
      if (series && mean !== null) values[name] = { mean, low: series.low?.[at] ?? mean, high: series.high?.[at] ?? mean, count };
    }
    return { place: (start - 1) / wire.width, values };
  }),
});

/** Raises `Problem`. */
export async function getCurves(id: string, range: Range | null, signal?: AbortSignal): Promise<Curves> {
  const query = { names: SERIES.join(","), buckets: BUCKETS, from: range?.[0] ?? 1, to: range?.[1] ?? null };
  const wire = await get("/v1/jobs/{job}/curves", { path: { job: id }, query, signal });
  const evals = wire.evals.map(({ step, loss }) => ({ step, loss }));
  return { curve: toCurve(wire), evals, cursor: afterCurve(wire.cursor) };
}
