/** The query of a log: when it is a search, and as parameters of an address. */

import type { Level, LogQuery } from "../api/log-search";

export const ALL: LogQuery = { text: "", level: "", rank: null, since: null, until: null };

/** The longest text that the control plane searches for. */
export const MOST_TEXT = 255;

/** Whether the query searches for something; a rank alone is none. */
export const isSearch = ({ text, level, since, until }: LogQuery) => text !== "" || level !== "" || since !== null || until !== null;

/** The parameters of an address that are written here. */
export const NAMES = ["text", "level", "rank", "since", "until"] as const;

export function read(params: URLSearchParams): LogQuery {
  const number = (name: string) => (/^\d{1,12}$/.test(params.get(name) ?? "") ? Number(params.get(name)) : null);
  const level = params.get("level");
  return {
    text: (params.get("text") ?? "").slice(0, MOST_TEXT),
    level: level === "warning" || level === "error" ? (level satisfies Level) : "",
    rank: number("rank"),
    since: number("since"),
    until: number("until"),
  };
}

export function write(query: LogQuery): URLSearchParams {
  const given = NAMES.flatMap((name) => (query[name] === null || query[name] === "" ? [] : [[name, String(query[name])]]));
  return new URLSearchParams(given);
}
