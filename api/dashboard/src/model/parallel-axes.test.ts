import { expect, test } from "vitest";
import { sweep, trial } from "../testing/sweeps";
import { axesOf, brushed, levelsOf, METRIC } from "./parallel-axes";

const LR = "train.optimizer.lr";
const BATCH = "train.global_batch";
const at = (number: number, lr: number, batch: number, value: number | null) => trial({ number, parameters: { [LR]: lr, [BATCH]: batch }, value });
const TRIALS = [at(0, 0.0001, 8, 3), at(1, 0.001, 16, 2), at(2, 0.01, 8, null), trial({ number: 3, parameters: null, value: null })];

test("a log axis has powers of ten evenly apart, a list its values, the metric its ends", () => {
  const [lr, batch, loss] = axesOf(sweep(), TRIALS);
  expect(lr?.name).toBe("lr");
  expect(TRIALS.map((one) => lr?.place(one)?.toFixed(3))).toEqual(["0.000", "0.500", "1.000", undefined]);
  expect(lr?.ticks.map(({ text }) => text)).toEqual(["0.0001", "0.001", "0.01"]);
  expect(lr?.text(0.5)).toBe("0.001");
  expect(TRIALS.map((one) => batch?.place(one))).toEqual([0, 1, 0, null]);
  expect(batch?.ticks).toEqual([{ place: 0, text: "8" }, { place: 1, text: "16" }]);
  expect(loss?.id).toBe(METRIC);
  expect(TRIALS.map((one) => loss?.place(one))).toEqual([1, 0, null, null]);
});

test("an axis without a width has one place", () => {
  const [, , loss] = axesOf(sweep(), [at(0, 0.001, 8, 2)]);
  expect(loss?.place(at(0, 0.001, 8, 2))).toBe(0.5);
  expect(loss?.ticks).toEqual([{ place: 0.5, text: "2" }]);
  expect(axesOf(sweep(), []).at(-1)?.ticks.map(({ text }) => text)).toEqual(["0", "0.25", "0.5", "0.75", "1"]);
});

test("a long list has some of its ticks only", () => {
  const values = Array.from({ length: 100 }, (_, index) => index);
  const [axis] = axesOf({ parameters: [{ path: "a", values }], metric: "loss" }, []);
  expect(axis?.ticks.length).toBeLessThanOrEqual(12);
  expect(axis?.place(trial({ parameters: { a: 99 } }))).toBe(1);
});

test("values of a list that look alike have places of their own", () => {
  const [axis] = axesOf({ parameters: [{ path: "a", values: [0.123411, 0.123412, "1", 1] }], metric: "loss" }, []);
  expect([0.123411, 0.123412, "1", 1, 2].map((a) => axis?.place(trial({ parameters: { a } })))).toEqual([0, 1 / 3, 2 / 3, 1, null]);
});

test("brushes keep the trials that pass all of them", () => {
  const axes = axesOf(sweep(), TRIALS);
  const kept = (brushes: Parameters<typeof brushed>[2]) => brushed(TRIALS, axes, brushes).map(({ number }) => number);
  expect(kept({})).toEqual([0, 1, 2, 3]);
  expect(kept({ [LR]: [0.4, 1] })).toEqual([1, 2]);
  expect(kept({ [LR]: [0.4, 1], [BATCH]: [1, 1] })).toEqual([1]);
  expect(kept({ [METRIC]: [0, 1] })).toEqual([0, 1]);
});

test("the best fifth has the last colour, also of one trial", () => {
  const trials = Array.from({ length: 10 }, (_, index) => at(index, 0.001, 8, index));
  expect([...levelsOf(trials, "minimize")].sort(([a], [b]) => a - b).map(([, level]) => level)).toEqual([4, 4, 3, 3, 2, 2, 1, 1, 0, 0]);
  expect(levelsOf(trials, "maximize").get(9)).toBe(4);
  expect([...levelsOf([at(7, 0.001, 8, 1), at(8, 0.001, 8, null)], "minimize")]).toEqual([[7, 4]]);
});
