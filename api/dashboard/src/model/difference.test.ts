import { expect, test } from "vitest";
import type { Drawn } from "../api/curves";
import { differenceTo } from "./difference";

const at = (x: number, y: number | null, span: { from?: number; to?: number } = {}): Drawn => ({ x, y, low: y, high: y, ...span });
const pairs = (points: readonly Drawn[]) => points.map(({ x, y }) => [x, y]);

test("at equal steps it is the difference of the values", () => {
  const found = differenceTo([at(1, 3), at(2, 5), at(3, null), at(4, 1)], [at(1, 1), at(2, 5), at(3, 7), at(4, 4)]);
  expect(pairs(found)).toEqual([[1, 2], [2, 0], [4, -3]]);
  expect(found[0]).toEqual({ x: 1, y: 2, low: 2, high: 2 });
});

test("between two steps of the baseline its value is on the line between them", () => {
  expect(pairs(differenceTo([at(5, 10), at(12.5, 0)], [at(0, 0), at(10, 10), at(15, 20)]))).toEqual([[5, 5], [12.5, -15]]);
});

test("beyond the baseline's steps there is none", () => {
  const wide = [at(2.5, 1, { from: 1, to: 4 }), at(6.5, 2, { from: 5, to: 8 })];
  expect(pairs(differenceTo([at(0, 9), at(1, 9), at(8, 9), at(9, 9)], wide))).toEqual([[1, 8], [8, 7]]);
  expect(differenceTo([at(1, 1)], [])).toEqual([]);
  expect(differenceTo([at(1, 1)], [at(1, null)])).toEqual([]);
});

test("a curve differs from itself nowhere", () => {
  const one = [at(1, 3), at(2, 5), at(3, null), at(4, 1)];
  expect(pairs(differenceTo(one, one))).toEqual([[1, 0], [2, 0], [4, 0]]);
});
