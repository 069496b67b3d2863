/** A job's metrics so far, thinned by the control plane. */

import type { Point } from "./curve";
import { get, type Schema } from "./http";

/** Validation loss at a step, in nats per token. */
export interface Eval {
  step: number;
  loss: number | null;
}

export interface Metrics {
  points: Point[];
  evals: Eval[];
  /** An event stream after it tells every event from the job's beginning, and of its steps those that are not in `points`. */
  cursor: string;
}

export type StepWire = Pick<Schema<"Step">, "step"> & Partial<Schema<"Step">>;

/** A cursor is `events.steps.logs`, three positions; steps go on after the curve, events begin at the beginning. */
const afterCurve = (cursor: string) => `0.${cursor.split(".")[1] ?? "0"}.0`;

export const toPoint = (wire: StepWire): Point => ({
  step: wire.step,
  loss: wire.loss ?? null,
  tokensPerSecond: wire.tokens_per_s ?? null,
});

/** Raises `Problem`. */
export async function getMetrics(id: string, signal?: AbortSignal): Promise<Metrics> {
  const wire = await get("/v1/jobs/{job}/metrics", { path: { job: id }, query: { max_points: 2000 }, signal });
  return {
    points: wire.points.map(toPoint),
    evals: wire.evals.map(({ step, loss }) => ({ step, loss })),
    cursor: afterCurve(wire.cursor),
  };
}
