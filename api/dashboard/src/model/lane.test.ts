import { expect, test } from "vitest";
import type { Span } from "../api/traces";
import { flatten, describeSpan, formatMicros, moved, outermost, paths, spanAt, zoomed } from "./lane";

const span = (start: number, length: number, category = "forward"): Span => ({ lane: 0, category, name: "it", start, length, microbatch: 2, stage: 1 });

test("a path holds the spans in view, each where it lies, and what waits is low", () => {
  const drawn = paths([span(0, 10), span(20, 10), span(90, 20, "receive")], { from: 20, to: 120 }, 100, 10);
  expect(drawn.get("forward")).toBe("M0.00 0.0h10.00v10.0H0.00z");
  expect(drawn.get("receive")).toBe("M70.00 7.0h20.00v3.0H70.00z");
});

test("thousands of spans on one pixel are drawn once", () => {
  const many = Array.from({ length: 4000 }, (_, at) => span(at / 100, 0.01));
  expect(paths(many, { from: 0, to: 4000 }, 100, 10).get("forward")?.split("z").length).toBeLessThan(5);
});

test("the shortest of the spans at a time is meant", () => {
  const inner = span(5, 1);
  expect(spanAt([span(0, 10), inner], 5.5)).toBe(inner);
  expect(spanAt([span(0, 10)], 11)).toBeNull();
});

test("zooming keeps the time under the pointer, and never leaves the step", () => {
  expect(zoomed({ from: 0, to: 1000 }, 0.5, 200, 1000)).toEqual({ from: 100, to: 600 });
  expect(zoomed({ from: 100, to: 600 }, 100, 200, 1000)).toEqual({ from: 0, to: 1000 });
  const least = zoomed({ from: 0, to: 1000 }, 1e-9, 500, 1000);
  expect(least.to - least.from).toBe(20);
  expect(moved({ from: 100, to: 600 }, -500, 1000)).toEqual({ from: 0, to: 500 });
  expect(moved({ from: 100, to: 600 }, 900, 1000)).toEqual({ from: 500, to: 1000 });
});

test("a span in words", () => {
  expect(describeSpan(3, span(1500, 12))).toBe("Rank 3 · it · Forward · micro-batch 2 · stage 1 · 12 µs, 1.5 ms after the start of the step");
  expect([formatMicros(999), formatMicros(150_000), formatMicros(2_500_000)]).toEqual(["999 µs", "150 ms", "2.50 s"]);
});

test("of spans within each other the innermost counts at each moment", () => {
  const spans = [span(0, 100, "other"), span(10, 30, "forward"), span(20, 10, "collective"), span(50, 20, "forward"), span(120, 5, "data")];
  expect(flatten(spans).map(({ category, start, length }) => [category, start, length])).toEqual([
    ["other", 0, 10],
    ["forward", 10, 10],
    ["collective", 20, 10],
    ["forward", 30, 10],
    ["other", 40, 10],
    ["forward", 50, 20],
    ["other", 70, 30],
    ["data", 120, 5],
  ]);
  const inner = [span(0, 100), span(10, 20), span(40, 5, "backward"), span(100, 5)];
  expect(outermost(inner).map(({ start }) => start)).toEqual([0, 40, 100]);
});
