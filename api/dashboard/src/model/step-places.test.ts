import { expect, test } from "vitest";
import { placesOf } from "./step-places";

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
