/**
 * A curve is what is known of a job's steps, in bounded memory. The step number is the key: a step that is told
 * again replaces what was told before, so that replays after a broken connection change nothing.
 */

export interface Point {
  step: number;
  loss: number | null;
  tokensPerSecond: number | null;
}

export interface Curve {
  points: readonly Point[];
  /** True once points were dropped to stay within `LIMIT`. */
  thinned: boolean;
}

/** Points kept at most; a screen has fewer columns. */
export const LIMIT = 4000;
/** The newest points are never thinned: what just happened is seen in full. */
const FRESH = 500;

export const EMPTY: Curve = { points: [], thinned: false };

/** `curve` with `news` (in any order) merged in. */
export function merge(curve: Curve, news: readonly Point[]): Curve {
  if (news.length === 0) return curve;
  const points = [...curve.points];
  for (const point of news) place(points, point);
  if (points.length <= LIMIT) return { ...curve, points };
  return { points: thin(points), thinned: true };
}

function place(points: Point[], point: Point): void {
  const last = points.at(-1);
  if (last === undefined || last.step < point.step) {
    points.push(point);
    return;
  }
  const at = search(points, point.step);
  points.splice(at, points[at]?.step === point.step ? 1 : 0, point);
}

/** Index of the first point whose step is not below `step`. */
function search(points: readonly Point[], step: number): number {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((points[middle]?.step ?? Infinity) < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** About half of the older points: of every four, the one of lowest and the one of highest loss, so that spikes stay. */
function thin(points: readonly Point[]): Point[] {
  const older = points.slice(0, -FRESH);
  const kept: Point[] = [];
  for (let start = 0; start < older.length; start += 4) {
    const bucket = older.slice(start, start + 4).sort((a, b) => (a.loss ?? 0) - (b.loss ?? 0));
    const extremes = new Set([bucket.at(0), bucket.at(-1)]);
    kept.push(...older.slice(start, start + 4).filter((point) => extremes.has(point)));
  }
  return [...kept, ...points.slice(-FRESH)];
}
