/** How charts run along tokens or time in place of steps. */

import type { Range } from "../api/curves";
import { duration, short } from "../model/format";
import type { Axis } from "../model/runs";
import type { Places } from "../model/step-places";
import type { Along, Line } from "./chart";

type OnZoom = ((zoom: Range | null) => void) | undefined;

const ALONG: Readonly<Record<Exclude<Axis, "step">, Along>> = { tokens: { name: "Tokens", format: short }, time: { name: "Time", format: duration } };

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
