/** Log lines by their job-wide position. Requests for what comes after the last line neither miss nor repeat a line. */

import { get, type Schema } from "./http";

const STREAMS = ["stdout", "stderr", "exec", "gate"] as const;

export interface LogLine {
  position: number;
  rank: number;
  /** `exec` and `gate`: not of the rank, but of a user's command, or of terminals and ports beside it. */
  stream: (typeof STREAMS)[number];
  text: string;
  /** When it was written; null where a test does not say. */
  at: Date | null;
}

/** Lines kept on the page. */
export const KEEP = 2000;
const TAIL = 500;
const BATCH = 1000;

export const toLine = (wire: Schema<"LogLine">): LogLine => ({
  position: wire.position,
  rank: wire.rank,
  stream: STREAMS.find((name) => name === wire.stream) ?? "stdout",
  text: wire.text,
  at: wire.ts === null ? null : new Date(wire.ts * 1000),
});

/** What is known of the end of a log. */
export interface LogEnd {
  lines: readonly LogLine[];
  /** Whether there are lines before these. */
  earlier: boolean;
  /** How many of the job's first lines, of all ranks, retention has removed. */
  removed: number;
}

async function newest(id: string, rank: number | null, tail: number, signal?: AbortSignal): Promise<LogEnd> {
  const { lines, earlier, removed } = await get("/v1/jobs/{job}/logs", { path: { job: id }, query: { rank, tail }, signal });
  return { lines: lines.map(toLine), earlier, removed };
}

/** Lines after a position, at most as many as the API allows at once; fewer if they are long. `next` is null at the end. Raises `Problem`. */
export async function linesAfter(id: string, rank: number | null, after: number, signal?: AbortSignal, limit = 10_000): Promise<Omit<LogEnd, "earlier"> & { next: number | null }> {
  const { lines, next, removed } = await get("/v1/jobs/{job}/logs", { path: { job: id }, query: { rank, after, limit }, signal });
  return { lines: lines.map(toLine), next, removed };
}

/**
 * `known` and what was written since, of one rank or of all (`rank` null): each position once, the newest `KEEP` of them.
 * Without news it is `known` itself. Raises `Problem`.
 */
export async function continueLogs(
  id: string,
  rank: number | null,
  known: LogEnd | undefined,
  signal?: AbortSignal,
): Promise<LogEnd> {
  const last = known?.lines.at(-1);
  if (known === undefined || last === undefined) return newest(id, rank, TAIL, signal);
  const news = await linesAfter(id, rank, last.position, signal, BATCH);
  // Further behind: what lies between, and before it, is no longer kept once the newest lines are here.
  if (news.next !== null) return newest(id, rank, KEEP, signal);
  const lines = append(known.lines, news.lines);
  if (lines === known.lines && news.removed === known.removed) return known;
  return { lines, earlier: known.earlier || lines[0] !== known.lines[0], removed: news.removed };
}

function append(lines: readonly LogLine[], news: readonly LogLine[]): readonly LogLine[] {
  const last = lines.at(-1)?.position ?? -1;
  const fresh = news.filter((line) => line.position > last);
  return fresh.length === 0 ? lines : [...lines, ...fresh].slice(-KEEP);
}
