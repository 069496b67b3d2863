/** How charts run along tokens or time in place of steps. */

import type { Range } from "../api/curves";
import { exactDuration, integer, shortTick } from "../model/format";
import type { Axis } from "../model/runs";
import type { Places } from "../model/step-places";
import type { Along, Line } from "./chart";

type OnZoom = ((zoom: Range | null) => void) | undefined;

/** Seconds between ticks, so that most of them are at whole minutes, hours or days. */
const BETWEEN_TICKS = [[1, 2, 5, 10, 15, 30], [60, 120, 300, 600, 900, 1800], [3600, 7200, 10_800, 21_600, 43_200], [1, 2, 5, 10, 20, 50, 100, 200, 500].map((days) => days * 86_400)].flat();

const ALONG: Readonly<Record<Exclude<Axis, "step">, Along>> = {
  tokens: { name: "Tokens", format: integer, onAxis: shortTick },
  time: { name: "Time", format: exactDuration, onAxis: exactDuration, increments: BETWEEN_TICKS, space: 100 },
};

/** Points at other places; what is drawn stays the same. */
export const placed = (lines: readonly Line[], { ofStep }: Places): Line[] =>
  lines.map((line) => ({
    ...line,
    points: line.points.map(({ from, to, ...point }) => ({ ...point, x: ofStep(point.x), ...(from !== undefined && to !== undefined && { from: ofStep(from), to: ofStep(to) }) })),
  }));

/** How a chart runs along something else than steps. Charts along the same share their cursor; a range is of steps everywhere else. */
export function alongOf(group: string, by: Axis, zoom: Range | null, places: Places | null, onZoom: OnZoom) {
  if (places === null || by === "step") return { group, zoom, ...(onZoom && { onZoom }) };
  const change = (range: Range | null) => { onZoom?.(range && [places.toStep(range[0]), places.toStep(range[1])]); };
  return { group: `${group}-${by}`, along: ALONG[by], zoom: zoom && ([places.ofStep(zoom[0]), places.ofStep(zoom[1])] as const), ...(onZoom && { onZoom: change }) };
}
