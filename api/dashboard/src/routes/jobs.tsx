/** `/`: all jobs, newest first; the filter is in the address, so that a view can be sent to a colleague. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useSearchParams } from "wouter";
import { Empty } from "../components/empty";
import { Filter } from "../components/filter";
import { JobTable } from "../components/job-table";
import { ProblemNotice } from "../components/problem-notice";
import { listJobs, type JobFilter } from "../services/jobs";
import { useNow } from "./use-now";
import { useTitle } from "./use-title";

const POLL_MS = 2000;
const TYPING_MS = 250;

export function JobsPage() {
  useTitle("Jobs");
  const now = useNow();
  const [filter, setFilter] = useFilter();
  const asked = { state: filter.state, text: useSettled(filter.text) };
  const query = useInfiniteQuery({
    queryKey: ["jobs", asked],
    queryFn: ({ pageParam, signal }) => listJobs(asked, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: POLL_MS,
    placeholderData: (before) => before,
  });
  const jobs = query.data?.pages.flatMap((page) => page.jobs) ?? [];

  return (
    <main className="page" aria-busy={query.isPending}>
      <div className="page-head">
        <h1>Jobs</h1>
        <Filter filter={filter} onChange={setFilter} />
      </div>
      {query.error && <ProblemNotice problem={query.error} stale={jobs.length > 0} />}
      {query.isLoading && <p className="quiet">Loading jobs…</p>}
      {jobs.length > 0 && <JobTable jobs={jobs} now={now} />}
      {query.isSuccess && jobs.length === 0 && (
        <Nothing filtered={filter.state !== "" || filter.text !== ""} onClear={() => { setFilter({ state: "", text: "" }); }} />
      )}
      {query.hasNextPage && (
        <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          {query.isFetchingNextPage ? "Loading…" : "Load more"}
        </button>
      )}
    </main>
  );
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  if (!filtered) {
    return (
      <Empty title="No jobs yet">
        <p>Submit one, and it appears here by itself:</p>
        <pre>shardyard submit examples/quickstart.yaml</pre>
      </Empty>
    );
  }
  return (
    <Empty title="No job matches this filter">
      <button className="button" onClick={onClear}>Show all jobs</button>
    </Empty>
  );
}

/** The filter as the address has it. */
function useFilter(): [JobFilter, (filter: JobFilter) => void] {
  const [params, setParams] = useSearchParams();
  const change = (filter: JobFilter) => {
    const entries = Object.entries(filter).filter(([, value]) => value !== "");
    setParams(Object.fromEntries(entries), { replace: true });
  };
  return [{ state: params.get("state") ?? "", text: params.get("text") ?? "" }, change];
}

/** `value` once it has stood still for a moment: nobody wants an answer per keystroke. */
function useSettled(value: string): string {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => { settle(value); }, TYPING_MS);
    return () => { clearTimeout(timer); };
  }, [value]);
  return settled;
}
