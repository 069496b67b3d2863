/**
 * A curve holds a job's steps in bounded memory: buckets of equal width, with the extremes and the mean of each number. In a bucket of
 * one step a repeated step replaces the earlier one, so replays after a broken connection change nothing. In a wider bucket it widens
 * the extremes. If a curve grows beyond `LIMIT` buckets, each two of them are merged.
 */

import type { Bucket, Curve, Drawn, Point, SeriesName, Value } from "../api/curves";

/** Buckets kept at most: a chart has about as many columns. */
export const LIMIT = 1000;

export const EMPTY_CURVE: Curve = { width: 1, buckets: [], end: null };

/** `curve` with `news` (in any order) merged in. */
export function merge(curve: Curve, news: readonly Point[]): Curve {
  if (news.length === 0) return curve;
  let { width, end } = curve;
  let buckets = [...curve.buckets];
  for (const point of news) {
    add(buckets, width, point);
    if (end === null || point.step >= end.step) end = point;
    while (buckets.length > LIMIT) {
      buckets = halved(buckets);
      width *= 2;
    }
  }
  return { width, buckets, end };
}

/** Without what lies beyond this step, which is trained again. A bucket over several steps stays whole if it has the step. */
export function cut({ width, buckets, end }: Curve, step: number): Curve {
  const kept = buckets.filter(({ place }) => place * width < step);
  return { width, buckets: kept, end: end !== null && end.step <= step ? end : null };
}

function add(buckets: Bucket[], width: number, point: Point): void {
  const place = Math.floor((point.step - 1) / width);
  const at = search(buckets, place);
  const known = buckets[at]?.place === place ? buckets[at] : undefined;
  const values = ofPoint(point);
  buckets.splice(at, known ? 1 : 0, { place, values: known && width > 1 ? joined(known.values, values) : values });
}

function ofPoint({ values }: Point): Bucket["values"] {
  const found: Partial<Record<SeriesName, Value>> = {};
  for (const [name, value] of Object.entries(values) as [SeriesName, number | null][]) {
    if (value !== null) found[name] = { low: value, high: value, mean: value, count: 1 };
  }
  return found;
}

function joined(one: Bucket["values"], other: Bucket["values"]): Bucket["values"] {
  const both: Partial<Record<SeriesName, Value>> = { ...one };
  for (const [name, value] of Object.entries(other) as [SeriesName, Value][]) {
    const known = one[name];
    both[name] = known === undefined ? value : joinedValue(known, value);
  }
  return both;
}

function joinedValue(a: Value, b: Value): Value {
  const count = a.count + b.count;
  const mean = a.mean + (b.mean - a.mean) * (b.count / count);
  return { low: Math.min(a.low, b.low), high: Math.max(a.high, b.high), mean, count };
}

/** Index of the first bucket whose place is not below `place`; nearly always it is the last one, or after it. */
function search(buckets: readonly Bucket[], place: number): number {
  let low = (buckets.at(-1)?.place ?? -1) < place ? buckets.length : 0;
  let high = buckets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((buckets[middle]?.place ?? Infinity) < place) low = middle + 1;
    else high = middle;
  }
  return low;
}

function halved(buckets: readonly Bucket[]): Bucket[] {
  const made: Bucket[] = [];
  for (const { place, values } of buckets) {
    const last = made.at(-1);
    if (last?.place === place >> 1) made[made.length - 1] = { place: place >> 1, values: joined(last.values, values) };
    else made.push({ place: place >> 1, values });
  }
  return made;
}

/** The newest step in the buckets; 0 without any. The last bucket may also have steps beyond `end`, which were replaced. */
export function lastStep({ width, buckets, end }: Curve): number {
  const last = buckets.at(-1);
  if (last === undefined) return 0;
  if (end !== null) return end.step;
  return last.place * width + Math.min(width, Math.max(...Object.values(last.values).map(({ count }) => count), 1));
}

/** One number along a curve, up to its last step; none where no step had it. */
export function along({ width, buckets, end }: Curve, name: SeriesName): readonly Drawn[] {
  if (!buckets.some(({ values }) => values[name] !== undefined)) return [];
  const drawn = buckets.map(({ place, values }): Drawn => {
    const value = values[name];
    const before = place * width;
    const count = Math.min(width, value?.count ?? width, (end?.step ?? Infinity) - before);
    const span = count > 1 ? { from: before + 1, to: before + count } : {};
    return { x: before + (count + 1) / 2, ...span, y: value?.mean ?? null, low: value?.low ?? null, high: value?.high ?? null };
  });
  const last = end?.values[name] ?? null;
  if (end === null || last === null || end.step <= (drawn.at(-1)?.x ?? 0)) return drawn;
  return [...drawn, { x: end.step, y: last, low: last, high: last }];
}

/**
 * An exponential moving average over what is drawn, from the first point on without a bias towards 0. `weight`: how much of the past
 * stays, from 0 (nothing) to below 1.
 */
export function smoothed(points: readonly Drawn[], weight: number): readonly Drawn[] {
  if (weight <= 0) return points;
  let sum = 0;
  let share = 0;
  return points.map((point) => {
    if (point.y === null) return point;
    sum = sum * weight + point.y * (1 - weight);
    share = share * weight + (1 - weight);
    return { ...point, y: sum / share };
  });
}
