import { describe, expect, test } from "vitest";
import { sweep, trial } from "../testing/sweeps";
import { bestSoFar, endedTrials, orderedTrials, parameterLines, rungsOf, shortNames, valueText } from "./sweeps";

test("trials that wait, run or are paused have not ended", () => {
  expect(endedTrials({ counts: { waiting: 1, active: 2, paused: 4, stopped: 8, refused: 16, succeeded: 32, failed: 64, cancelled: 128 } })).toBe(248);
  expect(endedTrials({ counts: {} })).toBe(0);
});

test("a name is the shortest end of a path that no other has", () => {
  const names = shortNames(["train.optimizer.lr", "train.head.lr", "train.steps", "lr", "command[3]"]);
  expect([...names.values()]).toEqual(["optimizer.lr", "head.lr", "steps", "lr", "command[3]"]);
});

test("parameters are copied in full digits, as YAML", () => {
  expect(parameterLines({ "train.optimizer.lr": 0.0012345678, "resources.env.LR": "0.10" })).toBe('train.optimizer.lr: 0.0012345678\nresources.env.LR: "0.10"');
  expect(parameterLines(null)).toBe("");
  expect([0.0012345678, 16, "a b", true, undefined].map(valueText)).toEqual(["0.001235", "16", "a b", "true", "–"]);
});

describe("the best so far", () => {
  const trials = [trial({ number: 0, value: 3 }), trial({ number: 1, value: 2 }), trial({ number: 2, value: 1, state: "stopped" }), trial({ number: 3, value: 2.5 }), trial({ number: 4, value: null, state: "active" })];

  test("is that of trials which ran to their end", () => {
    const { best, partial } = bestSoFar(trials, "minimize");
    expect(best).toEqual([{ x: 0, y: 3 }, { x: 1, y: 2 }, { x: 3, y: 2 }]);
    expect(partial).toEqual([{ x: 2, y: 1 }]);
    expect(bestSoFar(trials, "maximize").best.map(({ y }) => y)).toEqual([3, 3, 3]);
  });

  test("is that of all trials until one has run to its end", () => {
    expect(bestSoFar(trials.slice(2, 3), "minimize").best).toEqual([{ x: 2, y: 1 }]);
    expect(bestSoFar([], "minimize").best).toEqual([]);
  });
});

describe("rungs", () => {
  const at = (number: number, rungs: (number | null)[], state: "active" | "stopped" | "succeeded" = "stopped") => trial({ number, rungs, state });

  test("have the value that is needed to continue", () => {
    const trials = [at(0, [3]), at(1, [1, 0.5], "succeeded"), at(2, [2, 1]), at(3, [null]), at(4, [4]), at(5, [5]), at(6, [])];
    expect(rungsOf(sweep(), trials)).toEqual([
      { step: 10, reached: 6, continued: 2, cut: 2 },
      { step: 30, reached: 2, continued: 1, cut: null },
    ]);
  });

  test("of higher values are cut from below, and the first continues where a stop is final", () => {
    const asha = { reduction: 3, losers: "cancel" as const };
    expect(rungsOf({ asha, rungs: [10], goal: "maximize" }, [at(0, [3]), at(1, [5])])[0]?.cut).toBe(5);
    expect(rungsOf({ asha: null, rungs: [], goal: "maximize" }, [at(0, [3])])).toEqual([]);
  });
});

test("trials are ordered by any column, those without a value last", () => {
  const trials = [trial({ number: 0, value: 10 }), trial({ number: 1, value: null }), trial({ number: 2, value: 9 }), trial({ number: 3, parameters: null, value: 9 })];
  const order = (by: string) => orderedTrials(trials, by).map(({ number }) => number);
  expect(order("value")).toEqual([2, 3, 0, 1]);
  expect(order("-value")).toEqual([0, 2, 3, 1]);
  expect(order("-number")).toEqual([3, 2, 1, 0]);
  expect(order("train.optimizer.lr")).toEqual([0, 1, 2, 3]);
  expect(trials.map(({ number }) => number)).toEqual([0, 1, 2, 3]);
  const texts = ["16", "8", "a"].map((batch, number) => trial({ number, parameters: { batch } }));
  expect(orderedTrials(texts, "batch").map(({ number }) => number)).toEqual([1, 0, 2]);
});
