import { expect, test } from "vitest";
import type { RankSpans, Span, StepSpans } from "../api/traces";
import { lanesOf } from "./lanes";

const span = (name: string): Span => ({ lane: 0, category: "forward", name, start: 0, length: 10, microbatch: 0, stage: 0 });

const step = (ranks: readonly Pick<RankSpans, "rank" | "spans" | "ideal">[]): StepSpans => ({
  step: 5,
  length: 100,
  ranks: ranks.map((rank) => ({ pipeline: 0, place: rank.rank, rest: null, ...rank })),
  dropped: 0,
  unrecorded: 0,
});

test("a closer view has its own spans, and its own of the ideal schedule", () => {
  const whole = step([{ rank: 0, spans: [span("long")], ideal: [] }, { rank: 1, spans: [], ideal: [span("long")] }]);
  const detail = step([{ rank: 0, spans: [span("short")], ideal: [span("short")] }, { rank: 1, spans: [], ideal: [] }]);
  const names = (closer: StepSpans) => lanesOf(whole, closer, 0).rows.map(({ name, spans }) => [name, ...spans.map((one) => one.name)]);
  expect(names(whole)).toEqual([["rank 0", "long"], ["rank 1"], ["ideal 1", "long"]]);
  expect(names(detail)).toEqual([["rank 0", "short"], ["rank 1"], ["ideal 0", "short"], ["ideal 1"]]);
});
