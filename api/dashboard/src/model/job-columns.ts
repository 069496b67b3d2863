/** Columns of the table of jobs that users choose: fields of the spec, labels, results and logged metrics, by their path. */

import type { Job, Summary } from "../api/jobs";
import { leaves } from "./runs";

const RESULTS: readonly (keyof Summary)[] = ["firstLoss", "lastLoss", "validationLoss", "tokens", "tokensPerSecond", "timeToFirstStep", "steps"];

/** The newest values of a job's logged metrics, by name; null where it is not finite. */
export type Logged = ReadonlyMap<string, number | null>;

const LOGGED = "metric.";

/** Paths stand in an address between commas. */
export const loggedPath = (name: string) => LOGGED + name.replace(/[%,]/g, encodeURIComponent);

/** The name of a logged metric; null for another column. */
export const loggedName = (path: string) => (path.startsWith(LOGGED) ? path.slice(LOGGED.length).replaceAll("%2C", ",").replaceAll("%25", "%") : null);

/** Path → text of all that a job has. */
export function cellsOf(job: Job, logged: Logged = NOTHING): ReadonlyMap<string, string> {
  const results = RESULTS.flatMap((name): [string, string][] => {
    const value = job.summary?.[name] ?? null;
    return value === null ? [] : [[`result.${name}`, typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : String(value)]];
  });
  const labels = Object.entries(job.labels).map(([key, value]): [string, string] => [`label.${key}`, value]);
  const metrics = [...logged].map(([name, value]): [string, string] => [loggedPath(name), value === null ? "not finite" : String(Number(value.toPrecision(6)))]);
  return new Map([...leaves(job.spec, "spec"), ...labels, ...results, ...metrics]);
}

const NOTHING: Logged = new Map();

/** The paths that these jobs have: first those in which they differ, then the others. */
export function pathsOf(jobs: readonly Job[]): string[] {
  const all = jobs.map((job) => cellsOf(job));
  const paths = [...new Set(all.flatMap((cells) => [...cells.keys()]))].sort();
  const differ = (path: string) => new Set(all.map((cells) => cells.get(path))).size > 1;
  return [...paths.filter(differ), ...paths.filter((path) => !differ(path))];
}

/** The end of a path, as a column's head. */
export const headOf = (path: string) => loggedName(path) ?? path.split(".").slice(path.startsWith("spec.") ? -2 : 1).join(".").replace(/^(spec|train)\./, "");

const number = (text: string) => (text.trim() === "" || Number.isNaN(Number(text)) ? null : Number(text));

/** The jobs in the order of a column, numbers by their size; `-` before the path turns it around. Jobs without a value come last. */
export function ordered(jobs: readonly Job[], by: string, logged?: ReadonlyMap<string, Logged>): Job[] {
  const [path, sign] = by.startsWith("-") ? [by.slice(1), -1] : [by, 1];
  const values = new Map(jobs.map((job) => [job.id, cellsOf(job, logged?.get(job.id)).get(path)]));
  return [...jobs].sort((a, b) => {
    const [left, right] = [values.get(a.id), values.get(b.id)];
    if (left === undefined || right === undefined) return Number(left === undefined) - Number(right === undefined);
    const [a1, b1] = [number(left), number(right)];
    if (a1 !== null && b1 !== null) return sign * (a1 - b1);
    return sign * (Number(a1 === null) - Number(b1 === null) || left.localeCompare(right));
  });
}
