/** The history of a job before the events of its stream, a page at a time. */

import { type Entry, type SentEvent, toEntry } from "./events";
import { get, type Schema } from "./http";

export interface HistoryPage {
  /** Oldest first. */
  entries: readonly Entry[];
  /** The place before which the next page begins. */
  next: number | null;
}

/** The API describes an entry's data as any object; they are those of an event of its kind. */
const toSent = ({ kind, ts, data }: Schema<"HistoryEntry">) => ({ kind, data: { ...data, ts } }) as SentEvent<Entry["kind"]>;

/** The entries before a position. Raises `Problem`. */
export async function listHistory(id: string, before: number, limit: number, signal?: AbortSignal): Promise<HistoryPage> {
  const { items, next } = await get("/v1/jobs/{job}/history", { path: { job: id }, query: { before, limit }, signal });
  return { entries: items.map((item) => toEntry(`${item.position}.0.0`, toSent(item))).toReversed(), next };
}
