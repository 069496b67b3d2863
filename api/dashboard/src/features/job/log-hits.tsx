/** The lines that a search found. It continues until there is a page of them, and then on request. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useEffect, useLayoutEffect, useRef } from "react";
import { isRetryable, isUnreached } from "../../api/http";
import { linesAround, type LogQuery, type LogSearchResult, searchLogs } from "../../api/log-search";
import type { LogLine } from "../../api/logs";
import { AGAIN_MS, untilReached } from "../../api/retrying";
import { ProblemNotice } from "../../components/problem-notice";
import { LogLines } from "./log-lines";

/** Lines of one page: the search continues by itself until it has as many. */
const ENOUGH = 100;

export interface LogHitsProps {
  id: string;
  query: LogQuery;
  width: number;
  onLine: (line: LogLine) => void;
}

export function LogHits({ id, query, width, onLine }: LogHitsProps) {
  const search = useInfiniteQuery({
    queryKey: ["log-hits", id, query],
    queryFn: ({ pageParam, signal }) => searchLogs(id, query, pageParam, signal),
    initialPageParam: 0,
    getNextPageParam: ({ done, scannedTo }: LogSearchResult) => (done ? undefined : scannedTo),
    // All pages are kept: most are empty, and beyond `ENOUGH` lines each is one that the reader asked for.
    staleTime: Infinity,
    gcTime: 0,
    // Pages that are there are not read again.
    refetchInterval: (query) => query.state.data === undefined && untilReached(query),
  });
  const { data, hasNextPage, isFetching, fetchNextPage, refetch, error } = search;
  const lines = data?.pages.flatMap((page) => page.lines) ?? [];
  const last = data?.pages.at(-1);
  const searchesOn = hasNextPage && !isFetching && error === null && lines.length < ENOUGH;
  useEffect(() => {
    if (searchesOn) void fetchNextPage();
  }, [searchesOn, fetchNextPage, data]);
  const waits = hasNextPage && !isFetching && isUnreached(error);
  useEffect(() => {
    if (!waits) return;
    const timer = setTimeout(() => void fetchNextPage(), AGAIN_MS);
    return () => { clearTimeout(timer); };
  }, [waits, fetchNextPage]);
  return (
    <>
      {error && <ProblemNotice problem={error} />}
      {last === undefined && isRetryable(error) && <button className="button log-more" onClick={() => void refetch()}>Try again</button>}
      {(error === null || last !== undefined) && <p className="log-found quiet" role="status">{foundText(lines.length, last)}</p>}
      <div className="log-tail-lines" role="region" aria-label="Lines found" tabIndex={0}>
        <LogLines lines={lines} width={width} onLine={onLine} />
        {hasNextPage && !isFetching && <button className="button log-more" onClick={() => void fetchNextPage()}>Search further</button>}
      </div>
    </>
  );
}

function foundText(count: number, last: LogSearchResult | undefined): string {
  if (last === undefined) return "Searching…";
  const found = `${count.toLocaleString("en-US")} ${count === 1 ? "line" : "lines"} found`;
  const part = last.end === 0 ? 100 : Math.floor((last.scannedTo / last.end) * 100);
  return last.done ? `${found}.` : `${found} in the first ${Math.min(part, 99)} % of the log.`;
}

/** A line among its neighbours. */
export function LogContext({ id, rank, place, width }: { id: string; rank: number | null; place: number; width: number }) {
  const { data, error } = useQuery({ queryKey: ["log-around", id, rank, place], queryFn: ({ signal }) => linesAround(id, rank, place, signal), gcTime: 0 });
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const line = box.current?.querySelector<HTMLElement>("[data-marked]");
    if (line && box.current) box.current.scrollTop = line.offsetTop - box.current.clientHeight / 2;
  }, [data]);
  return (
    <>
      {error && <ProblemNotice problem={error} />}
      <div ref={box} className="log-tail-lines" role="region" aria-label="Lines around the match" tabIndex={0}>
        <LogLines lines={data ?? []} width={width} marked={place} />
      </div>
    </>
  );
}
