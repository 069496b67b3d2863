/** Search of a job's log by the control plane, a part of the log at a time, and the lines around a match. */

import { get } from "./http";
import { type LogLine, toLine } from "./logs";

export const LEVELS = ["", "warning", "error"] as const;
export type Level = (typeof LEVELS)[number];

export const STREAMS = ["", "stdout", "stderr"] as const;
export type Stream = (typeof STREAMS)[number];

export interface LogQuery {
  text: string;
  /** The text is a regular expression, in RE2's syntax. */
  regex: boolean;
  level: Level;
  stream: Stream;
  rank: number | null;
  /** Unix seconds. */
  since: number | null;
  until: number | null;
}

export interface LogSearchResult {
  lines: readonly LogLine[];
  /** Positions: how far the log was searched, and its end. */
  scannedTo: number;
  end: number;
  done: boolean;
}

const AT_ONCE = 100;

/** Raises `Problem`. */
export async function searchLogs(id: string, { text, regex, level, stream, rank, since, until }: LogQuery, after: number, signal?: AbortSignal, limit = AT_ONCE): Promise<LogSearchResult> {
  const query = { text, regex: regex && text !== "", level: level === "" ? null : level, stream: stream === "" ? null : stream, rank, since, until, after, limit };
  const wire = await get("/v1/jobs/{job}/logs/search", { path: { job: id }, query, signal });
  return { lines: wire.lines.map(toLine), scannedTo: wire.scanned_to, end: wire.end, done: wire.done };
}

/** Lines before and after the one at a place. Raises `Problem`. */
export async function linesAround(id: string, rank: number | null, place: number, signal?: AbortSignal): Promise<readonly LogLine[]> {
  const { lines } = await get("/v1/jobs/{job}/logs", { path: { job: id }, query: { rank, around: place, limit: 200 }, signal });
  return lines.map(toLine);
}
