import { expect, test } from "vitest";
import { ALL } from "./chart-view";
import { NAMES, read, write } from "./compare-view";

const USUAL = { ...ALL, base: "", difference: false, result: "last", columns: null } as const;

test.each([
  [USUAL, ""],
  [{ ...USUAL, smooth: 0.6, log: true, base: "job-2", difference: true }, "smooth=0.6&log=1&base=job-2&difference=1"],
  [{ ...USUAL, result: "highest", columns: ["training.loss", "metric.a,b&c"] }, "result=highest&metric=training.loss&metric=metric.a%2Cb%26c"],
  [{ ...USUAL, columns: [] }, "metric="],
] as const)("settings stand in an address, and are read from it", (view, text) => {
  expect(write(view).toString()).toBe(text);
  expect(read(new URLSearchParams(text))).toEqual(view);
});

test("what is none of them is as usual, and all names are written here", () => {
  expect(read(new URLSearchParams("result=best&difference=yes&other=1"))).toEqual(USUAL);
  const view = { ...USUAL, find: "a", smooth: 0.5, log: true, by: "time", zoom: [1, 2], base: "b", difference: true, result: "lowest", columns: ["c"] } as const;
  expect(new Set(write(view).keys())).toEqual(new Set(NAMES));
});

test("a metric is once among the columns, and not more are read than one answer has", () => {
  const many = new URLSearchParams(Array.from({ length: 60 }, (_, at) => ["metric", `metric.${at >> 1}`]));
  expect(read(many).columns).toHaveLength(24);
});
