/** Traces of steps as the dashboard has them. `toSummary` and `toSpans` are the only places that know the wire's names. */

import { get, post, type Schema } from "./http";

export interface Trace {
  id: string;
  steps: number;
  /** `open`, `done` or `failed`. */
  state: string;
  message: string | null;
  firstStep: number | null;
  lastStep: number | null;
  parts: number;
  partsExpected: number;
  requestedAt: Date;
}

/** Seconds; `compute` is the time in which the rank did not wait for others. */
export interface RankTime {
  rank: number;
  seconds: number;
  compute: number;
  wait: number;
  sums: Readonly<Record<string, number>>;
}

export interface StepTime {
  step: number;
  seconds: number;
  slowestRank: number | null;
  slowerBy: number | null;
  /** Shares of the schedule's time; null without a pipeline. */
  bubbleMeasured: number | null;
  bubbleIdeal: number | null;
}

export interface Summary {
  trace: Trace;
  steps: readonly StepTime[];
  ranks: readonly RankTime[];
}

/** Times are µs after the start of the step. Lane 0 is the training thread. */
export interface Span {
  lane: number;
  category: string;
  name: string;
  start: number;
  length: number;
  microbatch: number | null;
  stage: number | null;
}

/** By their start. */
export interface RankSpans {
  rank: number;
  pipeline: number | null;
  place: number | null;
  spans: readonly Span[];
  /** What it did between the spans; null where some are missing. */
  rest: Span | null;
  ideal: readonly Span[];
}

export interface StepSpans {
  step: number;
  length: number;
  ranks: readonly RankSpans[];
  /** Those that are not here: the shortest. A closer range has them. */
  dropped: number;
  /** Those of the whole step that no range has: the shortest of each rank. */
  unrecorded: number;
}

const toTrace = (wire: Schema<"Trace">): Trace => ({
  id: wire.id,
  steps: wire.steps,
  state: wire.state,
  message: wire.message,
  firstStep: wire.first_step,
  lastStep: wire.last_step,
  parts: wire.parts,
  partsExpected: wire.parts_wanted,
  requestedAt: new Date(wire.asked_at),
});

const toSummary = (wire: Schema<"TraceSummary">): Summary => ({
  trace: toTrace(wire.trace),
  steps: wire.steps.map((one) => ({
    step: one.step,
    seconds: one.seconds,
    slowestRank: one.slowest_rank,
    slowerBy: one.slower_by_s,
    bubbleMeasured: one.bubble_measured,
    bubbleIdeal: one.bubble_simulated,
  })),
  ranks: wire.ranks.map(({ rank, seconds, busy_s, wait_s, sums }) => ({ rank, seconds, compute: busy_s, wait: wait_s, sums })),
});

/** `all`: no span is missing. */
function toSpans(wire: Schema<"TraceSpans">, all: boolean): StepSpans {
  const category = (index: number) => wire.categories[index] ?? "other";
  const ranks = wire.ranks.map(({ rank, pipeline, place, began_us, length_us, spans, ideal }): RankSpans => ({
    rank,
    pipeline,
    place,
    spans: spans.map(([lane, kind, name, start, length, microbatch, stage]) => ({
      lane,
      category: category(kind),
      name: wire.names[name] ?? "",
      start,
      length,
      microbatch,
      stage,
    })),
    rest: all ? { lane: 0, category: "other", name: "between spans", start: began_us, length: length_us, microbatch: null, stage: null } : null,
    ideal: ideal.map(([kind, stage, microbatch, start, length]) => ({ lane: 0, category: category(kind), name: category(kind), start, length, microbatch, stage })),
  }));
  return { step: wire.step, length: wire.length_us, ranks, dropped: wire.dropped, unrecorded: wire.unrecorded };
}

/** The same key is one trace. Raises `Problem` (409 `job_not_running`, `trace_open`). */
export async function startTrace(job: string, steps: number, key: string): Promise<Trace> {
  const body = { type: "application/json", text: "", headers: { "Idempotency-Key": key } } as const;
  return toTrace(await post("/v1/jobs/{job}/trace", { path: { job }, query: { steps } }, body));
}

/** Newest first. Raises `Problem`. */
export async function listTraces(job: string, signal?: AbortSignal): Promise<Trace[]> {
  return (await get("/v1/jobs/{job}/traces", { path: { job }, signal })).items.map(toTrace);
}

/** Raises `Problem`. */
export async function getTrace(job: string, trace: string, step: number | null, signal?: AbortSignal): Promise<Summary> {
  return toSummary(await get("/v1/jobs/{job}/traces/{trace}", { path: { job, trace }, query: { step }, signal }));
}

/** A part of a step, in µs after its start; null: all of it. */
export type TimeRange = readonly [number, number] | null;

/** Raises `Problem`. */
export async function getSpans(job: string, trace: string, step: number, range: TimeRange, signal?: AbortSignal): Promise<StepSpans> {
  const query = { step, ...(range && { from_us: Math.floor(range[0]), to_us: Math.ceil(range[1]) }) };
  const wire = await get("/v1/jobs/{job}/traces/{trace}/spans", { path: { job, trace }, query, signal });
  return toSpans(wire, range === null && wire.dropped + wire.unrecorded === 0);
}

export const perfettoAddress = (job: string, trace: string) =>
  `/v1/jobs/${encodeURIComponent(job)}/traces/${encodeURIComponent(trace)}/perfetto`;
