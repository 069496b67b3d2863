import { expect, test } from "vitest";
import { afterCurve, type Curve, type Point, toCurve } from "../api/curves";
import { along, cut, EMPTY_CURVE, lastStep, LIMIT, merge, smoothed } from "./curve";

const point = (step: number, loss = 1 / step): Point => ({ step, values: { loss, tokens_per_s: 100, mfu: null, grad_norm: null, lr: null, loss_scale: null } });
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => point(from + i));
const places = ({ buckets }: Curve) => buckets.map(({ place }) => place);

test("a repeated step is there once, as it came last", () => {
  const curve = merge(merge(EMPTY_CURVE, range(1, 5)), [point(3, 9), point(4, 8), point(6)]);
  expect(places(curve)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(curve.buckets[2]?.values.loss).toEqual({ low: 9, high: 9, mean: 9, count: 1 });
});

test("a step between others finds its place", () => {
  expect(places(merge(merge(EMPTY_CURVE, [point(2), point(8)]), [point(5), point(1)]))).toEqual([0, 1, 4, 7]);
});

test("what was given is not changed", () => {
  const before = merge(EMPTY_CURVE, range(1, 3));
  merge(before, range(2, 9));
  expect(places(before)).toEqual([0, 1, 2]);
});

test("memory is bounded, and buckets are what their steps are", () => {
  let curve = EMPTY_CURVE;
  const said = range(1, 50_000).map((p) => (p.step === 7321 ? point(7321, 1e6) : p));
  for (let start = 0; start < said.length; start += 500) {
    curve = merge(curve, said.slice(start, start + 500));
    expect(curve.buckets.length).toBeLessThanOrEqual(LIMIT);
  }
  expect(curve.width).toBe(64);
  for (const { place, values } of curve.buckets) {
    const losses = said.slice(place * 64, (place + 1) * 64).map(({ values: { loss } }) => loss ?? 0);
    const mean = losses.reduce((sum, loss) => sum + loss) / losses.length;
    expect(values.loss).toEqual({ low: Math.min(...losses), high: Math.max(...losses), mean: expect.closeTo(mean, 6) as number, count: losses.length });
  }
  expect(Math.max(...along(curve, "loss").map(({ high }) => high ?? 0))).toBe(1e6);
});

test("the control plane's buckets go on where the stream does", () => {
  const history = toCurve({ width: 4, starts: [1, 5], end: 6, last_step: 6, series: { loss: { mean: [3, 2], low: [1, 2], high: [9, 2], last: 2 } } });
  const curve = merge(history, [point(7, 8), point(9, 1)]);
  expect(places(curve)).toEqual([0, 1, 2]);
  expect(curve.buckets[1]?.values.loss).toEqual({ low: 2, high: 8, mean: 4, count: 3 });
  expect(along(curve, "loss").map(({ x, y }) => [x, y])).toEqual([[2.5, 3], [6, 4], [9, 1]]);
  expect([lastStep(history), lastStep(curve), lastStep(EMPTY_CURVE)]).toEqual([6, 9, 0]);
  expect(along(curve, "mfu")).toEqual([]);
});

test("what lies beyond a step that is trained again goes, and the bucket at the cut has both", () => {
  const exact = merge(cut(merge(EMPTY_CURVE, range(1, 5)), 3), [point(3, 9)]);
  expect([places(exact), exact.end, lastStep(exact)]).toEqual([[0, 1, 2], point(3, 9), 3]);
  expect(along(exact, "loss").map(({ x, y }) => [x, y])).toEqual([[1, 1], [2, 1 / 2], [3, 9]]);
  const wide = merge(cut(merge({ ...EMPTY_CURVE, width: 4 }, range(1, 13)), 6), [point(6, 9)]);
  expect([places(wide), lastStep(wide)]).toEqual([[0, 1], 6]);
  expect(wide.buckets[1]?.values.loss).toMatchObject({ low: 1 / 8, high: 9, count: 5 });
  expect(along(wide, "loss").map(({ x, from, to }) => [x, from, to])).toEqual([[2.5, 1, 4], [5.5, 5, 6], [6, undefined, undefined]]);
});

test("smoothing keeps a level level, leaves holes, and 0 changes nothing", () => {
  const level = [1, 2, 3].map((x) => ({ x, y: x === 2 ? null : 5, low: 5, high: 5 }));
  expect(smoothed(level, 0)).toBe(level);
  expect(smoothed(level, 0.9).map(({ y }) => y)).toEqual([expect.closeTo(5), null, expect.closeTo(5)]);
  const jump = [0, 0, 0, 8].map((y, x) => ({ x, y, low: y, high: y }));
  expect(smoothed(jump, 0.5).at(-1)?.y).toBeCloseTo(8 * (8 / 15));
  expect(smoothed(jump, 0.5).at(-1)?.high).toBe(8);
});

test("a stream repeats the newest events, and no step", () => {
  expect(afterCurve("12.34.56")).toBe("0.34.0");
  expect(afterCurve("1200.34.56")).toBe("700.34.0");
});
