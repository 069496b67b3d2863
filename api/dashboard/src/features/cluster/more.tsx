/** Pages of a list, which are read one after the other. */

import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Page } from "../../api/cluster";
import { ProblemNotice } from "../../components/problem-notice";

const POLL_MS = 5000;

export interface PagesProps<P extends Page<unknown>> {
  /** What the pages are of, for the cache. */
  about: readonly (string | null)[];
  read: (after: string | null, signal: AbortSignal) => Promise<P>;
  children: (pages: readonly P[]) => ReactNode;
}

export function Pages<P extends Page<unknown>>({ about, read, children }: PagesProps<P>) {
  const query = useInfiniteQuery({
    queryKey: about,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    // All pages are read again: the more there are, the less often.
    refetchInterval: ({ state }) => POLL_MS * Math.max(1, state.data?.pages.length ?? 1),
  });
  return (
    <>
      {query.error && <ProblemNotice problem={query.error} stale={query.data !== undefined} />}
      {query.isLoading && <p className="quiet">Loading…</p>}
      {query.data && children(query.data.pages)}
      {query.hasNextPage && <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>More</button>}
    </>
  );
}
