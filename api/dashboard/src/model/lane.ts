/** How a lane of spans is drawn: the place of each span, and one path for all spans of a category, so that thousands are drawn fast. */

import type { Span } from "../api/traces";

/** What is in view, in µs. */
export interface View {
  from: number;
  to: number;
}

export interface Category {
  name: string;
  label: string;
  /** Share of a lane's height from its bottom: waiting is low, so that it does not need a colour to be recognised. */
  height: number;
  /** What a wide span is marked with. */
  letter: string;
}

/** In the order of the legend. */
export const CATEGORIES: readonly Category[] = [
  { name: "forward", label: "Forward", height: 1, letter: "F" },
  { name: "backward", label: "Backward", height: 0.84, letter: "B" },
  { name: "weight", label: "Weight gradient", height: 0.68, letter: "W" },
  { name: "optimizer", label: "Optimizer", height: 1, letter: "O" },
  { name: "data", label: "Data", height: 0.68, letter: "D" },
  { name: "other", label: "Other compute", height: 0.5, letter: "" },
  { name: "send", label: "Send", height: 0.3, letter: "" },
  { name: "receive", label: "Receive", height: 0.3, letter: "" },
  { name: "collective", label: "Collective", height: 0.3, letter: "" },
];

const BY_NAME = new Map(CATEGORIES.map((style) => [style.name, style]));

export const categoryOf = (category: string): Category => BY_NAME.get(category) ?? { name: "other", label: category, height: 0.5, letter: "" };

const end = ({ start, length }: Span) => start + length;

/**
 * Nested spans as spans side by side: at each time the innermost one counts. `spans` are ordered by their start, and of those with
 * the same start the longest comes first.
 */
export function flatten(spans: readonly Span[]): Span[] {
  const pieces: Span[] = [];
  const open: Span[] = [];
  let at = 0;
  const piece = (span: Span, until: number) => {
    if (until > at) pieces.push({ ...span, start: at, length: until - at });
    at = Math.max(at, until);
  };
  const close = (until: number) => {
    for (let inner = open.at(-1); inner && end(inner) <= until; inner = open.at(-1)) {
      piece(inner, end(inner));
      open.pop();
    }
  };
  for (const span of spans) {
    close(span.start);
    const outer = open.at(-1);
    if (outer) piece(outer, span.start);
    at = Math.max(at, span.start);
    open.push(span);
  }
  close(Infinity);
  return pieces.sort((one, other) => one.start - other.start);
}

/** The spans that are marked with a letter: those that are not within one of their own category. */
export function outermost(spans: readonly Span[]): Span[] {
  const until = new Map<string, number>();
  return spans.filter((span) => {
    if (span.start < (until.get(span.category) ?? -1)) return false;
    until.set(span.category, end(span));
    return true;
  });
}

/** Those of `spans` (by their start) that are in view. */
export function inView(spans: readonly Span[], view: View): Span[] {
  return spans.filter(({ start, length }) => start <= view.to && start + length >= view.from);
}

/** Rectangles narrower than this are drawn once for all that would lie upon each other. */
const LEAST_PX = 0.4;

/** A path per category, of the spans in view, on a lane that is `width` wide and `height` high. */
export function paths(spans: readonly Span[], view: View, width: number, height: number): Map<string, string> {
  const scale = width / (view.to - view.from);
  const drawn = new Map<string, string>();
  const ends = new Map<string, number>();
  for (const { category, start, length } of inView(spans, view)) {
    const style = categoryOf(category);
    const left = Math.max(0, (start - view.from) * scale);
    const right = Math.min(width, Math.max((start + length - view.from) * scale, left + LEAST_PX));
    if (right - (ends.get(style.name) ?? -1) < LEAST_PX) continue;
    ends.set(style.name, right);
    const tall = style.height * height;
    const box = `M${left.toFixed(2)} ${(height - tall).toFixed(1)}h${(right - left).toFixed(2)}v${tall.toFixed(1)}H${left.toFixed(2)}z`;
    drawn.set(style.name, (drawn.get(style.name) ?? "") + box);
  }
  return drawn;
}

/** The span at a time: of those that lie upon each other, the shortest. */
export function spanAt(spans: readonly Span[], time: number): Span | null {
  const there = spans.filter(({ start, length }) => start <= time && time <= start + length);
  return there.reduce<Span | null>((least, span) => (least === null || span.length < least.length ? span : least), null);
}

const LEAST_US = 20;

/** Nearer (factor below 1) or farther, around a time that stays where it is; never beyond the step. */
export function zoomed(view: View, factor: number, around: number, length: number): View {
  const wide = Math.min(length, Math.max(LEAST_US, (view.to - view.from) * factor));
  const share = (around - view.from) / (view.to - view.from);
  return moved({ from: around - share * wide, to: around + (1 - share) * wide }, 0, length);
}

/** Moved by `by` µs; never beyond the step. */
export function moved(view: View, by: number, length: number): View {
  const wide = view.to - view.from;
  const from = Math.min(Math.max(0, view.from + by), Math.max(0, length - wide));
  return { from, to: from + wide };
}

/** `12.3 ms`, `450 µs`. */
export function formatMicros(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  return us >= 1000 ? `${(us / 1000).toFixed(us >= 1e5 ? 0 : 1)} ms` : `${Math.round(us)} µs`;
}

/** `forward 3 · micro-batch 3 · stage 1 · 4.2 ms, 10.1 ms after the start of the step`. */
export function describeSpan(rank: number, span: Span): string {
  const parts = [`Rank ${rank}`, span.name, categoryOf(span.category).label];
  if (span.microbatch !== null) parts.push(`micro-batch ${span.microbatch}`);
  if (span.stage !== null) parts.push(`stage ${span.stage}`);
  return `${[...new Set(parts)].join(" · ")} · ${formatMicros(span.length)}, ${formatMicros(span.start)} after the start of the step`;
}
