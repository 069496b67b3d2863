/** Runs side by side: what is drawn along which axis, and where two specs differ. */

import type { Job } from "../api/jobs";
import type { RunPoint } from "../api/runs";
import { type Places, placesOf } from "./step-places";

export const AXES = ["step", "tokens", "time"] as const;

export type Axis = (typeof AXES)[number];

const along: Readonly<Record<Axis, (point: RunPoint) => number | null>> = {
  step: (point) => point.step,
  tokens: (point) => point.tokens,
  time: (point) => point.seconds,
};

/** Where a run's steps are along an axis; null where they have no place on it. */
export const placesAlong = (points: readonly RunPoint[], axis: Axis): Places | null =>
  placesOf(points.flatMap((point) => {
    const x = along[axis](point);
    return x === null ? [] : [{ step: point.step, x }];
  }));

export interface Difference {
  field: string;
  /** As JSON, one per spec; null where a spec does not have the field. */
  values: readonly (string | null)[];
}

/** The fields in which specs differ, in the order of the first spec that has them. */
export function differences(specs: readonly unknown[]): Difference[] {
  const flat = specs.map((spec) => new Map(leaves(spec, "")));
  const fields = new Set(flat.flatMap((one) => [...one.keys()]));
  return [...fields]
    .map((field) => ({ field, values: flat.map((one) => one.get(field) ?? null) }))
    .filter(({ values }) => new Set(values).size > 1);
}

/** The fields of a value, by their paths below `field`, as text. */
export function leaves(value: unknown, field: string): [string, string][] {
  const inner = typeof value === "object" && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
  if (inner.length === 0) return [[field, typeof value === "string" ? value : JSON.stringify(value)]];
  return inner.flatMap(([key, below]) => leaves(below, field === "" ? key : `${field}.${key}`));
}

/** The jobs' names. Jobs of the same name have the end of their ids with it. */
export function labelsOf(jobs: readonly Job[]): string[] {
  const shared = (name: string) => jobs.filter((job) => job.name === name).length > 1;
  return jobs.map(({ name, id }) => (shared(name) ? `${name} …${id.slice(-4)}` : name));
}
