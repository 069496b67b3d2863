import { expect, test } from "vitest";
import { coordinates, formatMeasure, median, scaleOf } from "./ranks";

test("a rank's place counts through the axes, the last one fastest", () => {
  const axes = [{ name: "pipeline", degree: 2 }, { name: "data", degree: 3 }, { name: "context", degree: 1 }, { name: "tensor", degree: 2 }];
  expect([0, 1, 2, 7, 11].map((rank) => coordinates(axes, rank))).toEqual([
    "pipeline 0 · data 0 · tensor 0",
    "pipeline 0 · data 0 · tensor 1",
    "pipeline 0 · data 1 · tensor 0",
    "pipeline 1 · data 0 · tensor 1",
    "pipeline 1 · data 2 · tensor 1",
  ]);
  expect(coordinates(null, 3)).toBe("");
});

test("ranks that are about equal look so, others do not", () => {
  const even = scaleOf([0.05, 0.0505, null]);
  expect(even?.level(0.05)).toBe(even?.level(0.0505));
  const uneven = scaleOf([0.05, 0.1]);
  expect([uneven?.level(0.05), uneven?.level(0.1)]).toEqual([0, 6]);
  expect(scaleOf([0, 0])?.level(0)).toBe(0);
  expect(scaleOf([null])).toBeNull();
});

test.each<[Parameters<typeof formatMeasure>[0], number | null, string]>([
  ["compute", 0.0523, "52.3 ms"], ["step", 0.4567, "457 ms"], ["wait", 1.2, "1.20 s"], ["wait", 0.00123, "1.23 ms"], ["memory", 2 ** 30, "1.0 GiB"], ["compute", null, "–"],
])("%s %s is %s", (measure, value, text) => { expect(formatMeasure(measure, value)).toBe(text); });

test("the median of what is known", () => {
  expect([median([3, 1, null, 2]), median([4, 1]), median([null])]).toEqual([2, 2.5, null]);
});
