/** How far the axis of values reaches at least: a line that hardly changes, such as a rate told in six digits, lies flat on it. */

/** Of the larger bound. */
const LEAST = 0.02;

/** `low` and `high`, moved apart where they are closer than that. */
export function spread(low: number, high: number): [number, number] {
  const missing = LEAST * Math.max(Math.abs(low), Math.abs(high)) - (high - low);
  const more = Math.max(missing, 0) / 2;
  return [low - more, high + more];
}
