import { expect, test } from "vitest";
import { type Curve, type Point, toCurve } from "../api/curves";
import { along, merge } from "./curve";
import { integer, loss } from "./format";
import { legendPlace, legendValue } from "./legend";

const exact = [1, 2, 3, 4].map((x) => ({ x, y: x === 3 ? null : 1 / x }));
const said = (points: Parameters<typeof legendValue>[0], x: number, pointed = true) => legendValue(points, x, pointed, loss, integer);

test("a value has its step with it where that is another; there is none beyond a line's end", () => {
  expect([1, 2, 3, 4, 5].map((x) => said(exact, x))).toEqual(["1.0000", "0.5000", "0.5000 at 2", "0.2500", "–"]);
  expect(said(exact, 0)).toBe("–");
  expect(said([], 1)).toBe("–");
});

test("without a pointer a line that ended early has its last value, with its step", () => {
  expect(said(exact, 900, false)).toBe("0.2500 at 4");
  expect(said(exact, 900, true)).toBe("–");
});

const point = (step: number, value: number): Point => ({ step, values: { loss: value, tokens_per_s: null, mfu: null, grad_norm: null, lr: null, loss_scale: null } });
const bucketed: Curve = toCurve({
  width: 4,
  starts: [1, 5],
  end: 7,
  last_step: 7,
  series: { loss: { mean: [3, 2], low: [1, 1], high: [9, 2.5], last: 1.25 } },
});

test("a bucket's mean is called one, of its steps; the last step has its own value", () => {
  const line = along(bucketed, "loss");
  expect(line.map(({ x }) => x)).toEqual([2.5, 6, 7]);
  expect(line.map(({ x }) => said(line, x))).toEqual(["mean 3.0000", "mean 2.0000", "1.2500"]);
  expect(line.map(({ x }) => legendPlace([line], x, integer))).toEqual(["1–4", "5–7", "7"]);
  expect(said(line, 7, false)).toBe("1.2500");
});

test("a step of the stream is the last step from then on, also of a curve that is halved", () => {
  const grown = merge(bucketed, [point(8, 0.5), point(9, 0.25), point(10, 0.125)]);
  const line = along(grown, "loss");
  expect(line.at(-1)).toEqual({ x: 10, y: 0.125, low: 0.125, high: 0.125 });
  expect(said(line, 10)).toBe("0.1250");
  expect(along(merge(grown, [point(9, 7)]), "loss").at(-1)?.y).toBe(0.125);
});

test("a range that ends before the run does has the value of its own last step", () => {
  const part = toCurve({ width: 2, starts: [1, 3], end: 4, last_step: 900, series: { loss: { mean: [3, 2], low: [1, 1], high: [9, 2.5], last: 2.5 } } });
  const line = along(part, "loss");
  expect(line.map(({ x }) => x)).toEqual([1.5, 3.5, 4]);
  expect(said(line, 4)).toBe("2.5000");
});

test("validations between steps have the step with them after which they were made", () => {
  const validations = [{ x: 100, y: 2 }, { x: 200, y: 1 }];
  expect(said(validations, 150)).toBe("2.0000 at 100");
  expect(legendPlace([validations], 150, integer)).toBe("150");
});
