/** The least range of the axis of values, so that a line that hardly changes is drawn flat. */

/** Of the larger bound. */
const LEAST = 0.02;

/** `low` and `high`, moved apart where they are closer than that. */
export function spread(low: number, high: number): [number, number] {
  const missing = LEAST * Math.max(Math.abs(low), Math.abs(high)) - (high - low);
  const more = Math.max(missing, 0) / 2;
  return [low - more, high + more];
}
