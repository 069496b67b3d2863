/** Sweeps and their trials as the pages have them. */

import { type Body, get, post, type Schema, SEARCH_MS } from "./http";

export type SweepState = Schema<"SweepDetail">["state"];
export type TrialState = Schema<"SweepTrial">["state"];

/** A parameter's value: text, a number or a boolean. */
export type Value = unknown;

/** The values that a parameter may have: those of a list, or a range. */
export type Parameter =
  | { path: string; values: readonly Value[] }
  | { path: string; values: null; min: number; max: number; log: boolean };

export interface Trial {
  number: number;
  state: TrialState;
  /** By path; null: not decided yet. */
  parameters: Readonly<Record<string, Value>> | null;
  /** Id of its job. */
  job: string | null;
  /** Null: it has no job, or the job was deleted. */
  jobState: string | null;
  step: number | null;
  /** The metric at each rung that it reached; null where it was not finite. */
  rungs: readonly (number | null)[];
  /** The metric at its end, or else at its last rung. */
  value: number | null;
  message: string | null;
  deviceSeconds: number;
}

/** Early stopping by asynchronous successive halving. */
export interface Asha {
  /** Of the trials at a rung, the best 1/reduction continue. */
  reduction: number;
  losers: "pause" | "cancel";
}

export interface Sweep {
  id: string;
  name: string;
  state: SweepState;
  message: string | null;
  parameters: readonly Parameter[];
  search: string;
  parallel: number;
  asha: Asha | null;
  metric: string;
  goal: "minimize" | "maximize";
  /** Steps at which trials are compared. */
  rungs: readonly number[];
  trials: number;
  counts: Readonly<Record<string, number>>;
  best: Trial | null;
  deviceSeconds: number;
  actor: string;
  createdAt: Date;
  finishedAt: Date | null;
}

/** All trials by number, as of a time by the service's clock. */
export interface TrialList {
  trials: readonly Trial[];
  asOf: number;
}

export interface SweepPage {
  sweeps: Sweep[];
  next: string | null;
}

export type SweepWire = Schema<"SweepDetail">;
export type TrialWire = Schema<"SweepTrial">;

export const toTrial = (wire: TrialWire): Trial => ({
  number: wire.number,
  state: wire.state,
  parameters: wire.parameters,
  job: wire.job,
  jobState: wire.job_state,
  step: wire.step,
  rungs: wire.rungs,
  value: wire.value,
  message: wire.message,
  deviceSeconds: wire.device_s,
});

function toParameter(path: string, wire: Schema<"Sweep">["parameters"][string]): Parameter {
  if (!("scale" in wire)) return { path, values: wire };
  if (wire.values !== null) return { path, values: wire.values };
  return { path, values: null, min: wire.min ?? 0, max: wire.max ?? 0, log: wire.scale === "log" };
}

export const toSweep = (wire: SweepWire): Sweep => ({
  id: wire.id,
  name: wire.name,
  state: wire.state,
  message: wire.message,
  parameters: Object.entries(wire.sweep.parameters).map(([path, values]) => toParameter(path, values)),
  search: wire.sweep.search,
  parallel: wire.sweep.parallel,
  asha: wire.sweep.asha ? { reduction: wire.sweep.asha.reduction, losers: wire.sweep.asha.losers } : null,
  metric: wire.metric,
  goal: wire.sweep.goal,
  rungs: wire.rungs,
  trials: wire.trials,
  counts: wire.counts,
  best: wire.best ? toTrial(wire.best) : null,
  deviceSeconds: wire.device_s,
  actor: wire.actor,
  createdAt: new Date(wire.created_at),
  finishedAt: wire.finished_at ? new Date(wire.finished_at) : null,
});

/** One page of sweeps, newest first. Raises `Problem`. */
export async function listSweeps(cursor: string | null, signal?: AbortSignal, limit = 25): Promise<SweepPage> {
  const wire = await get("/v1/sweeps", { query: { limit, cursor }, signal });
  return { sweeps: wire.items.map(toSweep), next: wire.next };
}

/** The sweep of this id, or the newest of this name. Raises `Problem`. */
export async function getSweep(id: string, signal?: AbortSignal): Promise<Sweep> {
  return toSweep(await get("/v1/sweeps/{sweep}", { path: { sweep: id }, signal }));
}

/** All trials, at most 1,000. Of those that were read `before` only the ones that may have changed are read again. Raises `Problem`. */
export async function listTrials(id: string, before?: TrialList, signal?: AbortSignal): Promise<TrialList> {
  const wire = await get("/v1/sweeps/{sweep}/trials", { path: { sweep: id }, query: { since: before?.asOf ?? null }, signal });
  const read = wire.items.map(toTrial);
  if (!before) return { trials: read, asOf: wire.as_of };
  const changed = new Map(read.map((trial) => [trial.number, trial]));
  return { trials: before.trials.map((trial) => changed.get(trial.number) ?? trial), asOf: wire.as_of };
}

/** Does nothing the second time. Raises `Problem` (409 `sweep_ended`). */
export async function cancelSweep(id: string): Promise<Sweep> {
  return toSweep(await post("/v1/sweeps/{sweep}/cancel", { path: { sweep: id } }));
}

/** The same key and text make one sweep, however often they are sent. Raises `Problem` with the fields and their remedies. */
export async function submitSweep(text: string, key: string): Promise<Sweep> {
  const body: Body = { type: "application/yaml", text, headers: { "Idempotency-Key": key } };
  return toSweep(await post("/v1/sweeps", { timeoutMs: SEARCH_MS }, body));
}
