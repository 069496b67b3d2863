/** What the keys of a timeline do: from span to span, from rank to rank, nearer and farther. */

import type { Span } from "../api/traces";
import { moved, spanAt, type View, zoomed } from "./lane";
import type { Lane } from "./lanes";

export interface Chosen {
  lane: Lane;
  span: Span;
}

export interface Key {
  key: string;
  shiftKey: boolean;
}

export interface Now {
  view: View;
  chosen: Chosen | null;
  lanes: readonly Lane[];
  length: number;
}

const ARROWS: Readonly<Record<string, (chosen: Chosen | null, lanes: readonly Lane[]) => Chosen | null>> = {
  ArrowRight: (chosen, lanes) => along(chosen, lanes, 1),
  ArrowLeft: (chosen, lanes) => along(chosen, lanes, -1),
  ArrowDown: (chosen, lanes) => across(chosen, lanes, 1),
  ArrowUp: (chosen, lanes) => across(chosen, lanes, -1),
};

/** What a key makes of it; null for one that is not ours. */
export function onKey({ key, shiftKey }: Key, { view, chosen, lanes, length }: Now): { view?: View; chosen?: Chosen | null } | null {
  const middle = chosen ? chosen.span.start + chosen.span.length / 2 : (view.from + view.to) / 2;
  const fifth = (view.to - view.from) / 5;
  if (key === "+" || key === "=") return { view: zoomed(view, 0.7, middle, length) };
  if (key === "-") return { view: zoomed(view, 1 / 0.7, middle, length) };
  if (key === "0") return { view: { from: 0, to: length } };
  if (key === "Escape") return { chosen: null };
  if (shiftKey && (key === "ArrowLeft" || key === "ArrowRight")) return { view: moved(view, key === "ArrowLeft" ? -fifth : fifth, length) };
  const next = ARROWS[key]?.(chosen, lanes);
  return next === undefined ? null : { chosen: next, ...(next && { view: revealing(view, next.span, length) }) };
}

/** The next span of the lane, or its first. */
function along(chosen: Chosen | null, lanes: readonly Lane[], by: number): Chosen | null {
  const lane = chosen ? lanes.find(({ name }) => name === chosen.lane.name) : lanes[0];
  if (!lane) return null;
  const at = chosen ? lane.spans.findIndex(({ start, name }) => start === chosen.span.start && name === chosen.span.name) : -1;
  const span = lane.spans[Math.min(lane.spans.length - 1, Math.max(0, at + by))];
  return span ? { lane, span } : null;
}

/** What another rank did at that time. */
function across(chosen: Chosen | null, lanes: readonly Lane[], by: number): Chosen | null {
  const at = chosen ? lanes.findIndex(({ name }) => name === chosen.lane.name) : -by;
  const lane = lanes[Math.min(lanes.length - 1, Math.max(0, at + by))];
  if (!lane) return null;
  const time = chosen ? chosen.span.start + chosen.span.length / 2 : 0;
  const distance = (span: Span) => Math.max(span.start - time, time - span.start - span.length);
  const span = spanAt(lane.spans, time) ?? lane.spans.reduce<Span | null>((best, one) => (best === null || distance(one) < distance(best) ? one : best), null);
  return span ? { lane, span } : null;
}

function revealing(view: View, span: Span, length: number): View {
  if (span.start >= view.from && span.start + Math.min(span.length, view.to - view.from) <= view.to) return view;
  return moved(view, span.start + span.length / 2 - (view.from + view.to) / 2, length);
}
