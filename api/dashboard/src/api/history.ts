/** The history of a job before the events of its stream, a page at a time. */

import { type Entry, toEntry } from "./events";
import { get } from "./http";

export interface HistoryPage {
  /** Oldest first. */
  entries: readonly Entry[];
  /** The place before which the next page begins. */
  next: number | null;
}

/** The entries before a position. Raises `Problem`. */
export async function listHistory(id: string, before: number, limit: number, signal?: AbortSignal): Promise<HistoryPage> {
  const { items, next } = await get("/v1/jobs/{job}/history", { path: { job: id }, query: { before, limit }, signal });
  return { entries: items.map(({ position, ts, kind, data }) => toEntry(kind, `${position}.0.0`, { ...data, ts })).toReversed(), next };
}
