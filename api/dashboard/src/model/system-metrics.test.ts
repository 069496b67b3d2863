import { expect, test } from "vitest";
import { alongTime, formatOf, pollMs, spanOf, systemGroups } from "./system-metrics";

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

test("ranges that are written alike have one object, for which a chart is not built again", () => {
  expect(alongTime(605)).toBe(alongTime(600));
  expect(alongTime(86_405)).toBe(alongTime(86_400));
  expect(alongTime(30 * 86_400 + 5)).toBe(alongTime(30 * 86_400));
});

test("the range is that of all lines, the first of which may begin late and end early", () => {
  const line = (...places: number[]) => ({ points: places.map((x) => ({ x })) });
  expect(spanOf([line(50, 60), line(10, 20, 90), line()])).toBe(80);
  expect([spanOf([]), spanOf([line()]), spanOf([line(50)])]).toEqual([0, 0, 0]);
});

test.each([[5, 40, 5000], [5, 3000, 30_000], [20, 40, 20_000], [1800, 40, 60_000], [1800, 9000, 90_000]])(
  "buckets of %s s whose answer took %s ms are read again after %s ms",
  (width, took, wait) => { expect(pollMs(width, took)).toBe(wait); },
);
