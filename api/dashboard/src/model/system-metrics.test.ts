import { expect, test } from "vitest";
import { formatOf, systemGroups, timeFormat } from "./system-metrics";

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
  expect(timeFormat(600)(noon)).toBe("12:30:05");
  expect(timeFormat(86_400)(noon)).toMatch(/^Wed.* 12:30$/);
  expect(timeFormat(30 * 86_400)(noon)).toBe("25 Nov");
  expect(timeFormat(600)(null)).toBe("–");
});
