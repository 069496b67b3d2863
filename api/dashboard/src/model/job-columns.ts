/** Columns of the table of jobs that users choose: times, fields of the spec, labels, results and logged metrics, by their path. */

import type { Job, Summary } from "../api/jobs";
import type { LoggedValues } from "../api/logged-metrics";
import { duration, secondsBetween } from "./format";
import { leaves } from "./runs";

const RESULTS: readonly (keyof Summary)[] = ["firstLoss", "lastLoss", "validationLoss", "tokens", "tokensPerSecond", "timeToFirstStep", "steps"];

/** The values of a job's logged metrics, by name. */
export type Logged = ReadonlyMap<string, LoggedValues>;

/** Heads of the columns of times, by their path. */
const TIMES: Readonly<Record<string, string>> = { duration: "Duration", device_time: "Device time" };

export const TIME_PATHS: readonly string[] = Object.keys(TIMES);

/** Columns of a logged metric, by the value of it that they have. */
const OF_METRICS = { metric: "last", lowest: "lowest", highest: "highest" } as const;

export type OfMetric = keyof typeof OF_METRICS;

/** Paths stand in an address between commas. */
export const loggedPath = (name: string, value: OfMetric = "metric") => `${value}.${name.replace(/[%,]/g, encodeURIComponent)}`;

const parse = (path: string): [OfMetric, string] | null => {
  const [, value, name] = /^(metric|lowest|highest)\.(.*)$/s.exec(path) ?? [];
  return value === undefined || name === undefined ? null : [value as OfMetric, name.replaceAll("%2C", ",").replaceAll("%25", "%")];
};

/** The name of a logged metric; null for another column. */
export const loggedName = (path: string) => parse(path)?.[1] ?? null;

/** The API's order by a column, `-` before it for the largest first; null if only the loaded jobs can be ordered by it. */
export function sortOf(by: string): string | null {
  const [sign, path] = by.startsWith("-") ? ["-", by.slice(1)] : ["", by];
  const logged = parse(path);
  if (logged !== null) return `${sign}${logged.join(".")}`;
  return TIME_PATHS.includes(path) ? by : null;
}

/** The column by which the API orders, `-` before it for the largest first; empty for an order without a column. */
export function orderedBy(sort: string): string {
  const [, sign = "", value, name] = /^(-?)(metric|lowest|highest)\.(.*)$/s.exec(sort) ?? [];
  if (value !== undefined && name !== undefined) return sign + loggedPath(name, value as OfMetric);
  return TIME_PATHS.includes(sort.replace(/^-/, "")) ? sort : "";
}

/** Path → text of all that a job has. With the present time it has its times, too. */
export function cellsOf(job: Job, logged: Logged = NOTHING, now?: Date): ReadonlyMap<string, string> {
  const results = RESULTS.flatMap((name): [string, string][] => {
    const value = job.summary?.[name] ?? null;
    return value === null ? [] : [[`result.${name}`, typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : String(value)]];
  });
  const labels = Object.entries(job.labels).map(([key, value]): [string, string] => [`label.${key}`, value]);
  const metrics = [...logged].flatMap(([name, values]) => Object.entries(OF_METRICS).map(([path, key]): [string, string] => [loggedPath(name, path as OfMetric), textOf(values[key])]));
  return new Map([...leaves(job.spec, "spec"), ...labels, ...results, ...metrics, ...(now ? times(job, now) : [])]);
}

/** A whole number, such as a step, with all its digits. */
const textOf = (value: number | null) => (value === null ? "not finite" : String(Number.isSafeInteger(value) ? value : Number(value.toPrecision(6))));

function times(job: Job, now: Date): [string, string][] {
  const lasted = secondsBetween(job.startedAt, job.finishedAt ?? now);
  const known: [string, number | null][] = [["duration", lasted], ["device_time", job.deviceSeconds]];
  return known.flatMap(([path, seconds]): [string, string][] => (seconds === null ? [] : [[path, duration(seconds)]]));
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
export const headOf = (path: string) => TIMES[path] ?? loggedHead(path) ?? path.split(".").slice(path.startsWith("spec.") ? -2 : 1).join(".").replace(/^(spec|train)\./, "");

function loggedHead(path: string): string | null {
  const logged = parse(path);
  return logged === null ? null : logged[0] === "metric" ? logged[1] : logged.join(" ");
}

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
