/** The lines of a log that a query finds, as one text file. They are read page by page; the browser keeps the file's parts, on disk if need be. */

import { type LogQuery, searchLogs } from "../../api/log-search";
import { type LogLine, linesAfter } from "../../api/logs";
import { retrying } from "../../api/retrying";
import { isSearch } from "../../model/log-search";

/** Of a search: the API's limit of one answer. */
const AT_ONCE = 500;
/** Characters of a file at most, so that no tab fills a disk. */
const MOST = 500_000_000;
/** Of one page: the control plane may have too many searches for a while. */
const TRIES = 5;

export interface Downloaded {
  file: Blob;
  lines: number;
  /** The file ends before the log does. */
  cut: boolean;
}

/** `onLines`: how many were read so far. Raises `Problem`, and the signal's reason. */
export async function downloadLog(id: string, query: LogQuery, onLines: (count: number) => void, signal: AbortSignal): Promise<Downloaded> {
  const parts: Blob[] = [];
  let lines = 0;
  let size = 0;
  for (let after: number | null = 0; after !== null;) {
    signal.throwIfAborted();
    const from: number = after;
    const page = await retrying(() => pageAfter(id, query, from, signal), signal, TRIES);
    const text = page.lines.map(asText).join("");
    parts.push(new Blob([text]));
    lines += page.lines.length;
    size += text.length;
    onLines(lines);
    if (size > MOST && page.next !== null) return { file: new Blob(parts, { type: "text/plain" }), lines, cut: true };
    after = page.next;
  }
  return { file: new Blob(parts, { type: "text/plain" }), lines, cut: false };
}

async function pageAfter(id: string, query: LogQuery, after: number, signal: AbortSignal): Promise<{ lines: readonly LogLine[]; next: number | null }> {
  if (!isSearch(query)) return linesAfter(id, query.rank, after, signal);
  const { lines, scannedTo, done } = await searchLogs(id, query, after, signal, AT_ONCE);
  return { lines, next: done ? null : scannedTo };
}

/** `2026-11-21T12:00:00.000Z rank 3 stderr careful`. */
const asText = ({ at, rank, stream, text }: LogLine) => `${at === null ? "" : `${at.toISOString()} `}rank ${rank} ${stream} ${text}\n`;
