/** Curves as CSV (RFC 4180): a row per point, with the steps that it stands for. */

import type { Drawn, Range } from "../api/curves";

export interface Series {
  name: string;
  points: readonly Pick<Drawn, "x" | "y" | "from" | "to" | "low" | "high">[];
}

const COLUMNS = ["series", "first_step", "last_step", "mean", "min", "max"];

/** The points that have any of these steps. */
export const within = (points: Series["points"], [low, high]: Range) => points.filter(({ x, from = x, to = x }) => to >= low && from <= high);

/** What has no value is an empty field. `range`: the steps of which any is in it; null: all. */
export function toCsv(series: readonly Series[], range: Range | null): string {
  const rows = series.flatMap(({ name, points }) =>
    (range ? within(points, range) : points).map(({ x, y, from = x, to = x, low: min, high: max }) => [name, from, to, y, min, max] as const),
  );
  return [COLUMNS, ...rows].map((row) => `${row.map(field).join(",")}\r\n`).join("");
}

/** Quoted where it has a separator; numbers to the last digit. A name is no formula to a spreadsheet. */
function field(value: string | number | null): string {
  const text = typeof value === "string" && /^[=+@\t-]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** `llama nano`, `train/loss` → `llama-nano-train-loss`: a name of a file on any system. */
export const fileName = (...parts: readonly string[]) => parts.join("-").replaceAll(/[^\p{L}\p{N}._-]+/gu, "-").replaceAll(/^[.-]+|-+$/g, "").slice(0, 120) || "chart";
