/** Traces for tests, as the wire has them: two ranks of one pipeline, 20 ms long. */

import type { Schema } from "../api/http";

export const CATEGORIES = ["forward", "backward", "weight", "optimizer", "send", "receive", "collective", "data", "other"];

export const traceWire = (changes: Partial<Schema<"Trace">> = {}): Schema<"Trace"> => ({
  id: "trace-1",
  job: "job-1",
  attempt: 1,
  steps: 3,
  state: "done",
  message: null,
  first_step: 5,
  last_step: 7,
  parts: 6,
  parts_wanted: 6,
  actor: "local",
  asked_at: "2026-11-21T12:01:00Z",
  settled_at: "2026-11-21T12:01:02Z",
  ...changes,
});

const rank = (number: number): Schema<"TracedRank"> => ({
  rank: number,
  pipeline: 0,
  place: number,
  seconds: 0.02,
  error_s: 0.00001,
  sums: { forward: 0.006, backward: 0.01, receive: 0.004 - 0.002 * number, other: 0.002 * number },
  busy_s: 0.016 + 0.002 * number,
  wait_s: 0.004 - 0.002 * number,
  bubble_measured: 0.23,
  bubble_simulated: 0.2,
  dropped: 0,
});

const step = (number: number): Schema<"TracedStep"> => ({
  step: number,
  began: 1000 + number,
  seconds: 0.02,
  ranks: 2,
  slowest_rank: 1,
  slower_by_s: 0.002,
  bubble_measured: 0.23,
  bubble_simulated: 0.2,
});

export const summaryWire = (): Schema<"TraceSummary"> => ({
  trace: traceWire(),
  steps: [step(5), step(6), step(7)],
  step: null,
  ranks: [rank(0), rank(1)],
  slowest_rank: 1,
  slower_by_s: 0.002,
  bubble_measured: 0.23,
  bubble_simulated: 0.2,
});

const spans = (number: number): Schema<"RankSpans"> => ({
  rank: number,
  pipeline: 0,
  place: number,
  began_us: number,
  length_us: 20_000,
  error_us: 10,
  lanes: ["training", "data"],
  spans: [
    [0, 8, 4, 0, 20_000, null, null],
    [0, 5, 2, 0, 4000, 0, number],
    [0, 0, 0, 4000, 6000, 0, number],
    [0, 1, 1, 10_000, 10_000, 0, number],
    [1, 6, 3, 12_000, 3000, null, null],
  ],
  ideal: [
    [0, number, 0, 4000, 6000],
    [1, number, 0, 10_000, 10_000],
  ],
  dropped: 0,
  unrecorded: 0,
});

export const spansWire = (changes: Partial<Schema<"TraceSpans">> = {}): Schema<"TraceSpans"> => ({
  trace: "trace-1",
  step: 5,
  began: 1005,
  length_us: 20_001,
  categories: CATEGORIES,
  names: ["forward 0", "backward 0", "receive forward 0", "all_reduce", "schedule"],
  ranks: [spans(0), spans(1)],
  dropped: 0,
  unrecorded: 0,
  ...changes,
});
