import { expect, test } from "vitest";
import { EMPTY, LIMIT, merge, type Point } from "./curve";

const point = (step: number, loss = 1 / step): Point => ({ step, loss, tokensPerSecond: 100 });
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => point(from + i));
const steps = (points: readonly Point[]) => points.map((p) => p.step);

test("a step that is told twice is there once, as told last", () => {
  const curve = merge(merge(EMPTY, range(1, 5)), [point(3, 9), point(4, 8), point(6)]);
  expect(steps(curve.points)).toEqual([1, 2, 3, 4, 5, 6]);
  expect(curve.points[2]?.loss).toBe(9);
});

test("a step between others finds its place", () => {
  expect(steps(merge(merge(EMPTY, [point(2), point(8)]), [point(5), point(1)]).points)).toEqual([1, 2, 5, 8]);
});

test("what was given is not changed", () => {
  const before = merge(EMPTY, range(1, 3));
  merge(before, range(2, 9));
  expect(steps(before.points)).toEqual([1, 2, 3]);
});

test("memory is bounded, spikes and the newest steps stay", () => {
  let curve = EMPTY;
  for (let start = 1; start < 50_000; start += 500) {
    const news = range(start, start + 499).map((p) => (p.step === 7_321 ? point(7_321, 1e6) : p));
    curve = merge(curve, news);
    expect(curve.points.length).toBeLessThanOrEqual(LIMIT);
  }
  expect(curve.thinned).toBe(true);
  expect(curve.points.some((p) => p.step === 7_321)).toBe(true);
  expect(steps(curve.points.slice(-400))).toEqual(steps(range(49_601, 50_000)));
  expect(steps(curve.points)).toEqual(steps(curve.points).toSorted((a, b) => a - b));
});
