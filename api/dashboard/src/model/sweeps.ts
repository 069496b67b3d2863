/** What the pages of sweeps compute from trials: how many have ended, the best so far, the rungs, the order of a table. */

import type { Sweep, SweepState, Trial, Value } from "../api/sweeps";

/** The label of a trial's job that has the sweep's id, and the one that has the trial's number. */
export const SWEEP_LABEL = "shardyard/sweep";
export const TRIAL_LABEL = "shardyard/trial";

const FINAL: ReadonlySet<SweepState> = new Set(["succeeded", "failed", "cancelled"]);
const OPEN: readonly string[] = ["waiting", "active", "paused"];

export const hasEnded = (state: SweepState) => FINAL.has(state);

/** Number of trials that neither run nor may continue. */
export const endedTrials = ({ counts }: Pick<Sweep, "counts">) =>
  Object.entries(counts).reduce((sum, [state, count]) => (OPEN.includes(state) ? sum : sum + count), 0);

/** Below zero if `a` is the better value. Lower values are better if the goal is `minimize`. */
export const compare = (goal: Sweep["goal"], a: number, b: number) => (goal === "minimize" ? a - b : b - a);

/** Path → the shortest end of it that no other path has: `optimizer.lr`. */
export function shortNames(paths: readonly string[]): ReadonlyMap<string, string> {
  const end = (path: string, parts: number) => path.split(".").slice(-parts).join(".");
  return new Map(paths.map((path) => {
    let parts = 1;
    while (end(path, parts) !== path && paths.some((other) => other !== path && end(other, parts) === end(path, parts))) parts += 1;
    return [path, end(path, parts)];
  }));
}

/** A number to four digits: `0.0001`, `1e-7`. */
export const digits = (value: number) => String(Number(value.toPrecision(4)));

/** A parameter's value as text; numbers that are not whole to four digits. */
export function valueText(value: Value): string {
  if (value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : digits(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Parameters as lines of YAML, `train.optimizer.lr: 0.003`, in full digits. */
export const parameterLines = (parameters: Trial["parameters"]) =>
  Object.entries(parameters ?? {}).map(([path, value]) => `${path}: ${JSON.stringify(value)}`).join("\n");

export interface Place {
  x: number;
  y: number;
}

/** The values of trials by number: those that ran to their end, those that did not, and the best so far of the former, or without any of the latter. */
export function bestSoFar(trials: readonly Trial[], goal: Sweep["goal"]): { whole: Place[]; partial: Place[]; best: Place[] } {
  const of = (kept: (trial: Trial) => boolean) => trials.flatMap((trial) => (trial.value !== null && kept(trial) ? [{ x: trial.number, y: trial.value }] : []));
  const whole = of(({ state }) => state === "succeeded");
  const partial = of(({ state }) => state !== "succeeded");
  const best: Place[] = [];
  for (const { x, y } of whole.length > 0 ? whole : partial) {
    const before = best.at(-1)?.y ?? y;
    best.push({ x, y: compare(goal, y, before) < 0 ? y : before });
  }
  return { whole, partial, best };
}

export interface Rung {
  step: number;
  /** Number of trials that reached it. */
  reached: number;
  /** Number of them that reached the next rung, or of the last rung that ran to their end. */
  continued: number;
  /** The worst value that is among the best 1/reduction of those that reached it; null: there are too few of them yet. */
  cut: number | null;
}

export function rungsOf({ rungs, asha, goal }: Pick<Sweep, "rungs" | "asha" | "goal">, trials: readonly Trial[]): Rung[] {
  if (asha === null) return [];
  return rungs.map((step, rung) => {
    const there = trials.filter((trial) => trial.rungs.length > rung);
    const finite = there.flatMap((trial) => trial.rungs[rung] ?? []).sort((a, b) => compare(goal, a, b));
    // As the service decides: with `losers: cancel` the first trial at a rung continues.
    const share = Math.floor((there.length + (asha.losers === "cancel" ? asha.reduction - 1 : 0)) / asha.reduction);
    const continued = there.filter((trial) => trial.rungs.length > rung + 1 || trial.state === "succeeded").length;
    return { step, reached: there.length, continued, cut: finite[Math.min(share, finite.length) - 1] ?? null };
  });
}

/** A column of the table of trials: one of these, or a parameter's path. */
export const COLUMNS = ["number", "state", "step", "value", "rungs", "device"] as const;

const FIELDS: Readonly<Record<string, (trial: Trial) => Value>> = {
  number: (trial) => trial.number,
  state: (trial) => trial.state,
  step: (trial) => trial.step,
  value: (trial) => trial.value,
  rungs: (trial) => trial.rungs.length,
  device: (trial) => trial.deviceSeconds,
};

/** The trials in the order of a column, numbers by size; `-` before it turns it around. Trials without a value come last. */
export function orderedTrials(trials: readonly Trial[], by: string): Trial[] {
  const [column, sign] = by.startsWith("-") ? [by.slice(1), -1] : [by, 1];
  const of = FIELDS[column] ?? ((trial: Trial) => trial.parameters?.[column]);
  const keyed = trials.map((trial) => ({ trial, key: of(trial) ?? null }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return Number(a.key === null) - Number(b.key === null) || a.trial.number - b.trial.number;
    const order = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : valueText(a.key).localeCompare(valueText(b.key), "en", { numeric: true });
    return sign * order || a.trial.number - b.trial.number;
  });
  return keyed.map(({ trial }) => trial);
}
