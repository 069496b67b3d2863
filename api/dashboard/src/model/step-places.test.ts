import { expect, test } from "vitest";
import { hull, placesOf, rangesAlong } from "./step-places";

test("a step is between its neighbours, there and back", () => {
  const places = placesOf([{ step: 1, x: 10 }, { step: 11, x: 20 }, { step: 21, x: 120 }]);
  expect([1, 6, 11, 16, 21].map((step) => places?.ofStep(step))).toEqual([10, 15, 20, 70, 120]);
  expect([10, 15, 70, 120].map((x) => places?.toStep(x))).toEqual([1, 6, 16, 21]);
});

test("beyond the known steps the nearest two lead on, and nothing is before the start", () => {
  const places = placesOf([{ step: 10, x: 10 }, { step: 20, x: 20 }, { step: 30, x: 40 }]);
  expect([places?.ofStep(40), places?.ofStep(5), places?.ofStep(-5)]).toEqual([60, 5, 0]);
});

test("a clock that was set back leaves steps out", () => {
  expect(placesOf([{ step: 1, x: 10 }, { step: 2, x: 5 }, { step: 3, x: 30 }])?.ofStep(2)).toBe(20);
});

test("one place is none", () => { expect(placesOf([{ step: 1, x: 1 }])).toBeNull(); });

test("a range of one run's steps is another one of each run, rounded outwards, and has a step at least", () => {
  const paced = (pace: number) => placesOf([1, 1000].map((step) => ({ step, x: pace * step })));
  const [one, half, slow] = [paced(1), paced(0.5), paced(400)];
  expect(rangesAlong([3, 7], [one, half, null, slow], one)).toEqual([[3, 7], [6, 14], null, [0, 1]]);
  expect(rangesAlong([3, 7], [null], null)).toEqual([null]);
  expect(rangesAlong(null, [one, half], one)).toEqual([null, null]);
});

test("a hull is from the first to the last step of all", () => {
  expect([hull([[3, 7], null, [5, 9]]), hull([null])]).toEqual([[3, 9], null]);
});
