/** `/sweeps`: all sweeps, the newest first. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { listSweeps } from "../api/sweeps";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { SweepTable } from "../features/sweeps/sweep-table";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";

const POLL_MS = 5000;

export function SweepsPage() {
  useTitle("Sweeps");
  const now = useNow();
  const query = useInfiniteQuery({
    queryKey: ["sweeps"],
    queryFn: ({ pageParam, signal }) => listSweeps(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    // All pages are read again: the more there are, the less often.
    refetchInterval: ({ state }) => POLL_MS * Math.max(1, state.data?.pages.length ?? 1),
  });
  const sweeps = query.data?.pages.flatMap((page) => page.sweeps) ?? [];
  return (
    <main className="page" aria-busy={query.isPending}>
      <div className="page-head">
        <h1>Sweeps</h1>
        <p className="quiet">Many trials of one job, each with other values of its parameters</p>
      </div>
      {query.error && <ProblemNotice problem={query.error} stale={sweeps.length > 0} />}
      {query.isLoading && <p className="quiet">Loading sweeps…</p>}
      {sweeps.length > 0 && <SweepTable sweeps={sweeps} now={now} />}
      {query.isSuccess && sweeps.length === 0 && (
        <Empty title="No sweeps yet">
          <p>Submit a spec with a part <code>sweep</code>. It then appears here:</p>
          <Link className="button" href="/new">New job</Link>
          <pre>shardyard submit examples/sweep.yaml</pre>
        </Empty>
      )}
      {query.hasNextPage && (
        <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          {query.isFetchingNextPage ? "Loading…" : "Older"}
        </button>
      )}
    </main>
  );
}
