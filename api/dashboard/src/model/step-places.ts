/** Where steps are along another axis, tokens or time: linear between the steps whose place is known, and beyond them. */

import type { Range } from "../api/curves";

export interface Place {
  step: number;
  x: number;
}

export interface Places {
  ofStep: (step: number) => number;
  toStep: (x: number) => number;
}

/** Null with fewer than two places. Of steps that go back (a clock was set) only those that go on are taken. */
export function placesOf(known: readonly Place[]): Places | null {
  const rising: Place[] = [];
  for (const place of known) {
    const last = rising.at(-1);
    if (last === undefined || (place.step > last.step && place.x > last.x)) rising.push(place);
  }
  if (rising.length < 2) return null;
  const steps = rising.map(({ step }) => step);
  const along = rising.map(({ x }) => x);
  return { ofStep: (step) => between(steps, along, step), toStep: (x) => between(along, steps, x) };
}

/** Of each run the steps that lie where `zoom`, in steps of the run whose places are `axis`, lies; null: its steps have no place. */
export const rangesAlong = (zoom: Range | null, places: readonly (Places | null)[], axis: Places | null): (Range | null)[] =>
  places.map((own) => (zoom === null || own === null || axis === null ? null : own === axis ? zoom : sameRange(zoom, axis, own)));

/** Rounded outwards, so that no step in it is missing; the first step of a training is 1. */
const sameRange = ([low, high]: Range, from: Places, to: Places): Range =>
  [Math.floor(to.toStep(from.ofStep(low))), Math.max(1, Math.ceil(to.toStep(from.ofStep(high))))];

/** From the first to the last step of any of them; null without any. */
export function hull(ranges: readonly (Range | null)[]): Range | null {
  const known = ranges.filter((range) => range !== null);
  return known.length === 0 ? null : [Math.min(...known.map(([low]) => low)), Math.max(...known.map(([, high]) => high))];
}

function between(from: readonly number[], to: readonly number[], value: number): number {
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((from[middle] ?? Infinity) <= value) low = middle;
    else high = middle;
  }
  const [a = 0, b = 0, c = 0, d = 0] = [from[low], from[high], to[low], to[high]];
  return Math.max(0, c + ((value - a) / (b - a)) * (d - c));
}
