/** The query of a log, and whether its lines are wrapped: when it is a search, and as parameters of an address. */

import type { LogQuery } from "../api/log-search";

export interface LogView extends LogQuery {
  wrap: boolean;
}

export const ALL: LogView = { text: "", regex: false, level: "", stream: "", rank: null, since: null, until: null, wrap: true };

/** The longest text that the control plane searches for. */
export const MOST_TEXT = 255;

/** Whether the query searches for something; a rank alone is none. */
export const isSearch = ({ text, level, stream, since, until }: LogQuery) => text !== "" || level !== "" || stream !== "" || since !== null || until !== null;

/** The parameters of an address that are written here. */
export const NAMES = ["text", "regex", "level", "stream", "rank", "since", "until", "wrap"] as const;

export function read(params: URLSearchParams): LogView {
  const number = (name: string) => (/^\d{1,12}$/.test(params.get(name) ?? "") ? Number(params.get(name)) : null);
  const level = params.get("level");
  const stream = params.get("stream");
  return {
    text: (params.get("text") ?? "").slice(0, MOST_TEXT),
    regex: params.get("regex") === "1",
    level: level === "warning" || level === "error" ? level : "",
    stream: stream === "stdout" || stream === "stderr" ? stream : "",
    rank: number("rank"),
    since: number("since"),
    until: number("until"),
    wrap: params.get("wrap") !== "0",
  };
}

export function write({ wrap, regex, ...query }: LogView): URLSearchParams {
  const given = Object.entries(query).flatMap(([name, value]) => (value === null || value === "" ? [] : [[name, String(value)]]));
  return new URLSearchParams([...given, ...(regex ? [["regex", "1"]] : []), ...(wrap ? [] : [["wrap", "0"]])]);
}
