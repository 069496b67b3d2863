import { expect, test } from "vitest";
import type { RunPoint } from "../api/runs";
import { differences, line } from "./runs";

const point = (step: number, changes: Partial<RunPoint> = {}): RunPoint => ({ step, seconds: step * 2, tokens: step * 512, loss: 1 / step, tokensPerSecond: 100, ...changes });

test("a line runs along steps, tokens or time", () => {
  const points = [point(1), point(2)];
  const loss = (one: RunPoint) => one.loss;
  expect(line(points, "step", loss)).toEqual([{ x: 1, y: 1 }, { x: 2, y: 0.5 }]);
  expect(line(points, "tokens", loss).map(({ x }) => x)).toEqual([512, 1024]);
  expect(line(points, "time", loss).map(({ x }) => x)).toEqual([2, 4]);
});

test("what has no place on the axis is left out, and the rest is in order, each place once", () => {
  const points = [point(1), point(2, { seconds: null }), point(3, { seconds: 1 }), point(4, { seconds: 2 })];
  expect(line(points, "time", (one) => one.step)).toEqual([{ x: 1, y: 3 }, { x: 2, y: 1 }]);
});

test("specs are compared field by field", () => {
  const first = { name: "a", train: { steps: 10, data: { files: ["x"], seq_len: 64 }, clip: null }, labels: {} };
  const second = { name: "b", train: { steps: 10, data: { files: ["x", "y"], seq_len: 64 }, clip: 1 }, labels: { team: "search" } };
  expect(differences([first, second])).toEqual([
    { field: "name", values: ["a", "b"] },
    { field: "train.data.files", values: ['["x"]', '["x","y"]'] },
    { field: "train.clip", values: ["null", "1"] },
    { field: "labels", values: ["{}", null] },
    { field: "labels.team", values: [null, "search"] },
  ]);
  expect(differences([first, first, first])).toEqual([]);
});
