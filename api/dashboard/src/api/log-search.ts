/** Lines found in a job's log by the control plane, a stretch at a time, and the lines about one of them. */

import { get } from "./http";
import { toLine, type LogLine } from "./logs";

export const LEVELS = ["", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

export interface Wanted {
  text: string;
  level: Level;
  rank: number | null;
  /** Unix seconds. */
  since: number | null;
  until: number | null;
}

export interface Hits {
  lines: readonly LogLine[];
  /** How far was looked, and how far the log goes. */
  looked: number;
  last: number;
  done: boolean;
}

/** Whether anything is searched for; a rank alone is not. */
export const isSearch = ({ text, level, since, until }: Wanted) => text !== "" || level !== "" || since !== null || until !== null;

const AT_ONCE = 100;

/** Raises `Problem`. */
export async function searchLogs(id: string, { text, level, rank, since, until }: Wanted, after: number, signal?: AbortSignal): Promise<Hits> {
  const query = { text, level: level === "" ? null : level, rank, since, until, after, limit: AT_ONCE };
  const wire = await get("/v1/jobs/{job}/logs/search", { path: { job: id }, query, signal });
  return { ...wire, lines: wire.lines.map(toLine) };
}

/** Lines before and after the one at a place. Raises `Problem`. */
export async function linesAround(id: string, rank: number | null, place: number, signal?: AbortSignal): Promise<readonly LogLine[]> {
  const { lines } = await get("/v1/jobs/{job}/logs", { path: { job: id }, query: { rank, around: place, limit: 200 }, signal });
  return lines.map(toLine);
}
