/** A curve's difference to another one at equal steps. */

import type { Drawn } from "../api/curves";

/**
 * Points where `base` has a value: at the same step, or between two of its steps, where it is taken to be a straight line. The points of
 * two curves are at different steps if their buckets differ in width, or if the jobs logged at different steps.
 */
export function differenceTo(points: readonly Drawn[], base: readonly Drawn[]): readonly Drawn[] {
  const known = base.filter(({ y }) => y !== null);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return [];
  let next = 0;
  return points.flatMap((point): Drawn[] => {
    const { x, y } = point;
    if (y === null || x < (first.from ?? first.x) || x > (last.to ?? last.x)) return [];
    while ((known[next]?.x ?? Infinity) < x) next += 1;
    const above = y - between(known[next - 1] ?? first, known[next] ?? last, x);
    return [{ ...point, y: above, low: above, high: above }];
  });
}

function between(a: Drawn, b: Drawn, x: number): number {
  const [low, high] = [a.y ?? 0, b.y ?? 0];
  if (b.x === x || b.x === a.x) return high;
  // Within the first or the last bucket, before its middle or after it, the value is the bucket's.
  return low + (high - low) * Math.min(1, Math.max(0, (x - a.x) / (b.x - a.x)));
}
