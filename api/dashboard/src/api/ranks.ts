/** What each rank of a job does, sample by sample, and where it stands. */

import { bytes } from "../model/format";
import { get, type Schema } from "./http";

export type Measure = "own" | "step" | "waited" | "memory";

export interface Axis {
  name: string;
  degree: number;
}

export interface RankSample {
  /** Its place among the job's samples. */
  n: number;
  at: Date;
  attempt: number;
  step: number;
  steps: number;
  size: number;
  /** The outermost first: ranks count through them, the last one fastest. Null where the layout is not known. */
  axes: readonly Axis[] | null;
  /** By rank: seconds, of memory bytes. */
  values: Readonly<Record<Measure, readonly (number | null)[]>>;
  memoryOf: "allocated" | "resident" | null;
  /** By rank: the id of its machine. */
  nodes: readonly (string | null)[];
  slow: { rank: number; message: string } | null;
}

export type RankWire = Schema<"RankSample">;

export const toRankSample = (wire: RankWire): RankSample => ({
  n: wire.n,
  at: new Date(wire.ts * 1000),
  attempt: wire.attempt,
  step: wire.step,
  steps: wire.steps,
  size: wire.step_s.length,
  axes: wire.axes && Object.entries(wire.axes).map(([name, degree]) => ({ name, degree })),
  values: { own: wire.own_s, step: wire.step_s, waited: wire.waited_s, memory: wire.memory },
  memoryOf: wire.memory_of === "allocated" || wire.memory_of === "resident" ? wire.memory_of : null,
  nodes: wire.node_of.map((place) => (place === null ? null : (wire.nodes[place] ?? null))),
  slow: wire.slow && { rank: wire.slow.rank, message: wire.slow.message },
});

export interface Kept {
  sample: RankSample | null;
  /** Place of the oldest sample that is kept. */
  first: number | null;
}

/** The newest sample, or the newest one up to place `at`. Raises `Problem`. */
export async function getRanks(id: string, at: number | null, signal?: AbortSignal): Promise<Kept> {
  const query = { limit: 1, before: at === null ? null : at + 1 };
  const { items, first } = await get("/v1/jobs/{job}/ranks", { path: { job: id }, query, signal });
  const [newest] = items;
  return { sample: newest ? toRankSample(newest) : null, first: first ?? null };
}

/** `pipeline 1 · data 0`: the axes that have more than one rank; empty where none has, or they are not known. */
export function place(axes: readonly Axis[] | null, rank: number): string {
  let rest = rank;
  const parts: string[] = [];
  for (const { name, degree } of (axes ?? []).toReversed()) {
    if (degree > 1) parts.unshift(`${name} ${rest % degree}`);
    rest = Math.floor(rest / degree);
  }
  return parts.join(" · ");
}

export const NAMES: Readonly<Record<Measure, string>> = { own: "Own compute", step: "Step", waited: "Waiting", memory: "Memory" };

/** `52.3 ms`, `1.20 s`, `1.2 GiB`. */
export function measured(measure: Measure, value: number | null): string {
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

/** Of what is known. It spans a tenth of the highest value at least, so that ranks which are about equal look so. */
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
