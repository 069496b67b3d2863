import { expect, test } from "vitest";
import { ALL, rangeOf, read, write } from "./chart-view";

test("what is written into an address is read from it", () => {
  for (const view of [ALL, { find: "train/", smooth: 0.6, log: true, by: "tokens", zoom: [100, 2000] } as const]) {
    expect(read(write(view))).toEqual(view);
  }
  expect(write(ALL).toString()).toBe("");
});

test.each(["smooth=2", "smooth=x", "from=5", "from=9&to=3", "from=a&to=b", "log=yes", "by=loss"])("%s means nothing", (address) => {
  expect(read(new URLSearchParams(address))).toEqual(ALL);
});

test("a range is of whole steps from 0 on", () => {
  expect(rangeOf(-3.2, 10.6)).toEqual([0, 11]);
  expect(rangeOf(5, 5)).toBeNull();
});
