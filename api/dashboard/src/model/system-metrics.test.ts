import { expect, test } from "vitest";
import { alongTime, formatOf, pollMs, systemGroups } from "./system-metrics";

test("metrics are in groups, in the order of the page", () => {
  expect(systemGroups(["rank/memory", "node/cpu", "rank/cpu", "rank/mood"])).toEqual([
    { name: "Nodes", metrics: ["node/cpu"] },
    { name: "Ranks", metrics: ["rank/cpu", "rank/memory"] },
  ]);
  expect(systemGroups([])).toEqual([]);
});

test("values are written by their unit", () => {
  expect(formatOf("bytes")(2 ** 30)).toBe("1.0 GiB");
  expect(formatOf("bytes/s")(2048)).toBe("2.0 KiB/s");
  expect(formatOf("bytes/s")(null)).toBe("–");
  expect(formatOf("W")(689.4)).toBe("689.4");
});

test("times are written by the length of the range", () => {
  const noon = new Date(2026, 10, 25, 12, 30, 5).getTime() / 1000;
  expect(alongTime(600).format(noon)).toBe("12:30:05");
  expect(alongTime(86_400).format(noon)).toMatch(/^Wed.* 12:30$/);
  expect(alongTime(30 * 86_400).format(noon)).toBe("25 Nov, 12:30");
  expect(alongTime(30 * 86_400).onAxis(noon)).toBe("25 Nov");
  expect(alongTime(86_400).onAxis(noon)).toMatch(/^Wed.* 12:30$/);
  expect(alongTime(600).format(null)).toBe("–");
});

test.each([[5, 40, 5000], [5, 3000, 30_000], [20, 40, 20_000], [1800, 40, 60_000], [1800, 9000, 90_000]])(
  "buckets of %s s whose answer took %s ms are read again after %s ms",
  (width, took, wait) => { expect(pollMs(width, took)).toBe(wait); },
);
