import { expect, test } from "vitest";
import { arrange } from "./rank-lines";

const axes = (degrees: Record<string, number>) => Object.entries(degrees).map(([name, degree]) => ({ name, degree }));
const shape = (degrees: Record<string, number>, size: number) =>
  arrange(axes(degrees), size).lines.map(({ label, blocks }) => `${label}: ${blocks.map((block) => block.join(",")).join(" | ")}`);

test.each<[Record<string, number>, number, string[]]>([
  [{ pipeline: 1, data: 1, context: 1, tensor: 1 }, 1, ["rank 0: 0"]],
  [{ pipeline: 1, data: 4, context: 1, tensor: 1 }, 4, ["data 0–3: 0 | 1 | 2 | 3"]],
  [{ pipeline: 1, data: 1, context: 1, tensor: 4 }, 4, ["ranks 0–3: 0,1,2,3"]],
  [{ pipeline: 1, data: 2, context: 1, tensor: 2 }, 4, ["data 0–1: 0,1 | 2,3"]],
  [{ pipeline: 2, data: 1, context: 1, tensor: 2 }, 4, ["pipeline 0–1: 0,1 | 2,3"]],
  [{ pipeline: 2, data: 2, context: 1, tensor: 2 }, 8, ["pipeline 0: 0,1 | 2,3", "pipeline 1: 4,5 | 6,7"]],
  [{ pipeline: 1, data: 2, context: 2, tensor: 1 }, 4, ["data 0: 0 | 1", "data 1: 2 | 3"]],
])("%o", (degrees, size, lines) => { expect(shape(degrees, size)).toEqual(lines); });

test("what would be too wide goes on in the next line, and blocks stay whole", () => {
  const { lines } = arrange(axes({ pipeline: 2, data: 8, context: 1, tensor: 8 }), 128);
  expect(lines.map(({ label, blocks }) => [label, blocks.length])).toEqual([["pipeline 0", 4], ["", 4], ["pipeline 1", 4], ["", 4]]);
  expect(lines.flatMap(({ blocks }) => blocks.flat())).toEqual(Array.from({ length: 128 }, (_, rank) => rank));
  expect(arrange(axes({ data: 40 }), 40).lines.map(({ label }) => label)).toEqual(["data 0–31", "data 32–39"]);
});

test("without axes ranks stand in lines", () => {
  expect(arrange(null, 33).lines.map(({ label }) => label)).toEqual(["ranks 0–31", "rank 32"]);
});
