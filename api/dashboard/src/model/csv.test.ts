import { expect, test } from "vitest";
import { fileName, toCsv } from "./csv";

test("each point is a row with its steps, mean and extremes", () => {
  const points = [
    { x: 1.5, from: 1, to: 2, y: 0.1 + 0.2, low: 0.25, high: 1e-7 },
    { x: 3, y: null, low: null, high: null },
  ];
  expect(toCsv([{ name: 'a "b", c', points }, { name: "Validation", points: [{ x: 20, y: 2, low: 2, high: 2 }] }], null)).toBe(
    'series,first_step,last_step,mean,min,max\r\n"a ""b"", c",1,2,0.30000000000000004,0.25,1e-7\r\n"a ""b"", c",3,3,,,\r\nValidation,20,20,2,2,2\r\n',
  );
});

test("a name is no formula", () => {
  expect(toCsv([{ name: "=1+1", points: [{ x: 1, y: -2, low: -2, high: -2 }] }], null).split("\r\n")[1]).toBe("'=1+1,1,1,-2,-2,-2");
});

test("of a range there are the points of which a step is in it", () => {
  const points = [1.5, 3.5, 5.5].map((x) => ({ x, from: x - 0.5, to: x + 0.5, y: x, low: x, high: x }));
  expect(toCsv([{ name: "a", points }], [4, 5]).split("\r\n").slice(1, -1)).toEqual(["a,3,4,3.5,3.5,3.5", "a,5,6,5.5,5.5,5.5"]);
});

test("a file's name has no separator of paths, and is never empty or hidden", () => {
  expect(fileName("llama nano", "train/loss")).toBe("llama-nano-train-loss");
  expect(fileName("../..", "C:\\x?")).toBe("C-x");
  expect(fileName("/")).toBe("chart");
  expect(fileName("Größe")).toBe("Größe");
  expect(fileName("x".repeat(300))).toHaveLength(120);
});
