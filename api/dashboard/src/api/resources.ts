/** Memory and traffic of a job's ranks: measured, and by formula. */

import { get, type Schema } from "./http";

export interface Resources {
  /** The probed step; null before the first. */
  step: number | null;
  memory: readonly Held[];
  traffic: readonly Flow[];
  /** By how much the measured peak exceeds the plan; null if it does not. */
  offPlan: string | null;
  /** Whether the plan is the submitter's own dry run of a module, and not by formulas. */
  plannedByDryRun: boolean;
  /** Why there is no formula at all. */
  reason: string | null;
}

export interface Range {
  low: number;
  high: number;
}

/** Bytes of one kind on a rank, least and most over ranks. */
export interface Held {
  kind: string;
  measured: Range | null;
  formula: (Range & { words: string }) | null;
  /** At the peak of a step, on the rank that needs most. */
  planned: number | null;
  reason: string | null;
}

/** What rank 0 sends in a step. */
export interface Flow {
  axis: string;
  collective: string;
  calls: number | null;
  bytes: number | null;
  formula: { words: string; bytes: number } | null;
  /** Measured elements to the formula's. */
  ratio: number | null;
  reason: string | null;
}

const range = (low: number | null, high: number | null): Range | null => (low === null || high === null ? null : { low, high });

function toHeld(wire: Schema<"MemoryUsage">): Held {
  const formula = range(wire.low, wire.high);
  return {
    kind: wire.kind,
    measured: range(wire.least, wire.most),
    formula: formula && wire.formula !== null ? { ...formula, words: wire.formula } : null,
    planned: wire.planned,
    reason: wire.reason,
  };
}

const toFlow = (wire: Schema<"CommVolume">): Flow => ({
  axis: wire.axis,
  collective: wire.collective.replaceAll("_", "-"),
  calls: wire.calls,
  bytes: wire.bytes,
  formula: wire.formula !== null && wire.formula_bytes !== null ? { words: wire.formula, bytes: wire.formula_bytes } : null,
  ratio: wire.elements !== null && wire.formula_elements ? wire.elements / wire.formula_elements : null,
  reason: wire.reason,
});

/** Raises `Problem`. */
export async function getResources(id: string, signal?: AbortSignal): Promise<Resources> {
  const wire = await get("/v1/jobs/{job}/resources", { path: { job: id }, signal });
  return {
    step: wire.step,
    memory: wire.memory.map(toHeld),
    traffic: wire.traffic.map(toFlow),
    offPlan: wire.off_plan,
    plannedByDryRun: wire.planned_by === "dry run",
    reason: wire.reason,
  };
}
