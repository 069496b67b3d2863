/** The timeline of a job as it is drawn. */

import type { Mark, Span, Timeline } from "../api/timeline";

/** A span on the screen: from `left` to `left + width`, shares of the whole line. */
export interface DrawnSpan {
  span: Span;
  left: number;
  width: number;
}

export interface Drawn {
  begun: number;
  ended: number;
  spans: DrawnSpan[];
  marks: { mark: Mark; at: number }[];
  /** The first moment of each attempt after the first, and its number. */
  attempts: { number: number; at: number }[];
}

/** `now`: where spans that last end. Null while there is nothing to draw. */
export function draw({ spans, marks }: Timeline, now: number): Drawn | null {
  const first = spans[0];
  if (first === undefined) return null;
  const last = spans[spans.length - 1] ?? first;
  const begun = first.begun;
  const ended = Math.max(last.ended ?? now, begun + 1e-3, ...marks.map(({ ts }) => ts));
  const at = (ts: number) => Math.min(1, Math.max(0, (ts - begun) / (ended - begun)));
  return {
    begun,
    ended,
    spans: spans.map((span) => ({ span, left: at(span.begun), width: at(span.ended ?? ended) - at(span.begun) })),
    marks: marks.map((mark) => ({ mark, at: at(mark.ts) })),
    attempts: spans.flatMap((span, index) => (index > 0 && span.attempt > 1 && span.attempt !== spans[index - 1]?.attempt ? [{ number: span.attempt, at: at(span.begun) }] : [])),
  };
}
