/** Metrics of a job's ranks, sample by sample, with the mesh and the machines. */

import { get, type Schema } from "./http";

export type Measure = "compute" | "step" | "wait" | "memory";

export interface Axis {
  name: string;
  degree: number;
}

export interface RankSample {
  /** Its place among the job's samples. */
  position: number;
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

export type RankWire = Schema<"RankMetrics">;

export const toRankSample = (wire: RankWire): RankSample => ({
  position: wire.position,
  at: new Date(wire.ts * 1000),
  attempt: wire.attempt,
  step: wire.step,
  steps: wire.steps,
  size: wire.step_s.length,
  axes: wire.axes && Object.entries(wire.axes).map(([name, degree]) => ({ name, degree })),
  values: { compute: wire.busy_s, step: wire.step_s, wait: wire.wait_s, memory: wire.memory },
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
