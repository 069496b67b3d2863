import { expect, test } from "vitest";
import type { RunPoint } from "../api/runs";
import { AXES, differences, placesAlong } from "./runs";

const point = (step: number, changes: Partial<RunPoint> = {}): RunPoint => ({ step, seconds: step * 2, tokens: step * 512, ...changes });

test("steps have places along steps, tokens and time", () => {
  const points = [point(1), point(3)];
  expect(AXES.map((axis) => placesAlong(points, axis)?.ofStep(2))).toEqual([2, 1024, 4]);
});

test("steps without a time are between those that have one", () => {
  const points = [point(1), point(2, { seconds: null }), point(3, { seconds: 10 })];
  expect(placesAlong(points, "time")?.ofStep(2)).toBe(6);
  expect(placesAlong(points.slice(0, 2), "time")).toBeNull();
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
