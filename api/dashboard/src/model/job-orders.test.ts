import { expect, test } from "vitest";
import { isSort, offered } from "./job-orders";

test("an order of the API is one in the address", () => {
  expect(["newest", "-name", "device_time", "-highest.val/acc", "metric.a b"].every(isSort)).toBe(true);
  expect(["", "-newest", "loss", "metric.", `metric.${"a".repeat(201)}`, "-", "--name"].some(isSort)).toBe(false);
});

test("the present order is among those that are offered", () => {
  const last = (sort: string) => offered(sort).at(-1);
  expect(offered("newest")).toHaveLength(6);
  expect(last("-highest.a,b")).toEqual(["-highest.a,b", "By highest a,b, largest first"]);
  expect(last("duration")).toEqual(["duration", "Shortest first"]);
  expect(last("-state")).toEqual(["-state", "By state, reversed"]);
});
