import { expect, test } from "vitest";
import { spread } from "./spread";

test("a line that hardly changes lies flat", () => {
  const [low, high] = spread(0.000999999, 0.001);
  expect(high - low).toBeCloseTo(0.02 * 0.001, 9);
  expect(low).toBeLessThan(0.000999999);
  expect(high).toBeGreaterThan(0.001);
});

test("what changes, and what is zero, is left as it is", () => {
  expect(spread(2, 5)).toEqual([2, 5]);
  expect(spread(0, 0)).toEqual([0, 0]);
});
