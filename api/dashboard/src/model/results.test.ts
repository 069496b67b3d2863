import { expect, test } from "vitest";
import { EMPTY_CURVE, merge } from "./curve";
import { deltaText, formatOf, headOf, loggedPath, resultOf, trainingPaths, usualPaths } from "./results";

const values = { tokens_per_s: 100, mfu: null, grad_norm: null, lr: null, loss_scale: null };
const curve = merge(EMPTY_CURVE, [3, 1, 2].map((loss, at) => ({ step: at + 1, values: { ...values, loss } })));
const acc = { last: 0.5, band: true, points: [{ x: 1.5, y: 0.4, low: 0.1, high: 0.9 }, { x: 3.5, y: null, low: null, high: null }] };
const TRAINING = { curve, evals: [{ step: 2, loss: 4 }, { step: 3, loss: null }], logged: new Map() };
const PROGRAM = { curve: EMPTY_CURVE, evals: [], logged: new Map([["acc", acc]]) };

test("a metric has a last, a lowest and a highest value", () => {
  expect(resultOf(TRAINING, "training.loss")).toEqual({ last: 2, lowest: 1, highest: 3 });
  expect(resultOf(TRAINING, "training.validation")).toEqual({ last: 4, lowest: 4, highest: 4 });
  expect(resultOf(PROGRAM, loggedPath("acc"))).toEqual({ last: 0.5, lowest: 0.1, highest: 0.9 });
  for (const path of ["training.mfu", "training.nothing", "metric.other", "other"]) expect(resultOf(TRAINING, path)).toEqual({ last: null, lowest: null, highest: null });
});

test("a table has the main numbers of trainings, and some that were logged", () => {
  const trained = trainingPaths([PROGRAM, TRAINING]);
  expect(trained).toEqual(["training.loss", "training.tokens_per_s", "training.validation"]);
  expect(trainingPaths([PROGRAM])).toEqual([]);
  expect(usualPaths(trained, ["a", "b", "c", "d", "e"])).toEqual(["training.loss", "training.validation", "training.tokens_per_s", "metric.a", "metric.b", "metric.c", "metric.d"]);
  expect(trained.map(headOf)).toEqual(["Loss", "Tokens/s", "Validation"]);
  expect([headOf("metric.a.b"), formatOf("training.tokens_per_s")(10_342), formatOf("metric.a")(0.12345)]).toEqual(["a.b", "10,342", "0.1235"]);
});

test.each([
  [1, 0.8, "+0.2 (+25.0 %)"],
  [0.6, 0.8, "-0.2 (-25.0 %)"],
  [-1, -2, "+1 (+50.0 %)"],
  [2, 2, "+0 (+0.0 %)"],
  [3, 0, "+3"],
  [null, 1, null],
  [1, null, null],
])("%s beside a baseline of %s: %s", (value, base, text) => { expect(deltaText(value, base)).toBe(text); });
