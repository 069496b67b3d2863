/** `/`: all jobs; filter and order are in the address, so that a view can be sent to a colleague. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";
import { type Job, type JobFilter, listJobs, NO_FILTER } from "../api/jobs";
import { getLoggedValues } from "../api/logged-metrics";
import { getSparklines } from "../api/sparklines";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { BulkCancel, BulkDelete, BulkPause, BulkRestore, BulkResume } from "../features/jobs/bulk-actions";
import { ChooseColumns } from "../features/jobs/choose-columns";
import { Filter } from "../features/jobs/filter";
import { GroupChoice } from "../features/jobs/group-choice";
import { JobTable } from "../features/jobs/job-table";
import { UndoDelete } from "../features/jobs/undo-delete";
import { SavedViews } from "../features/jobs/saved-views";
import { useColumns } from "../hooks/use-columns";
import { useDebounced } from "../hooks/use-debounced";
import { useGrouping } from "../hooks/use-grouping";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import { compareAddress, MAX_COMPARED } from "../model/addresses";
import { integer } from "../model/format";
import { headOf, loggedName, ordered } from "../model/job-columns";
import { isSort } from "../model/job-orders";
import "../features/jobs/jobs.css";

const POLL_MS = 2000;
const CURVES_MS = 5000;
/** With more rows than this their ages are counted more rarely: each time all rows are drawn again. */
const MANY = 100;
const MANY_MS = 10_000;

export function JobsPage() {
  useTitle("Jobs");
  const [filter, setFilter] = useFilter();
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const [deleted, setDeleted] = useState<readonly Job[]>([]);
  // Until Undo or Dismiss: one deletion may take several requests, as jobs that refused stay selected.
  const addDeleted = (gone: readonly Job[]) => { setDeleted((before) => unique([...before, ...gone])); };
  const { columns, by, local, change } = useColumns();
  const [group, setGroup] = useGrouping();
  const query = useJobs(filter);
  const loaded = unique(query.data?.pages.flatMap((page) => page.jobs) ?? []);
  const now = useNow(loaded.length > MANY ? MANY_MS : undefined);
  const { data: logged, error: unread } = useLogged(loaded, columns);
  const jobs = local ? ordered(loaded, by, logged) : loaded;
  const sparklines = useSparklines(jobs);
  const marked = jobs.filter((job) => selected.has(job.id));
  const filtered = filter.state !== "" || filter.text !== "" || filter.label !== "" || filter.deleted !== "";

  return (
    <main className="page" aria-busy={query.isPending}>
      <div className="page-head">
        <h1>Jobs</h1>
        <Filter filter={filter} onChange={setFilter} />
        {(jobs.length > 0 || group !== "") && <GroupChoice jobs={jobs} by={group} onChange={setGroup} />}
        {jobs.length > 0 && <ChooseColumns jobs={jobs} columns={columns} onChange={(chosen) => { change(chosen, by); }} />}
        <SavedViews />
      </div>
      {query.error && <ProblemNotice problem={query.error} stale={jobs.length > 0} />}
      {!query.error && unread && <ProblemNotice problem={unread} stale />}
      {query.isLoading && <p className="quiet">Loading jobs…</p>}
      {marked.length > 0 && <Selection jobs={marked} onNone={() => { select(new Set()); }} onDeleted={(gone) => { select(new Set()); addDeleted(gone); }} onSome={addDeleted} />}
      {deleted.length > 0 && <UndoDelete jobs={deleted} onDone={() => { setDeleted([]); }} />}
      {jobs.length > 0 && <JobTable jobs={jobs} now={now} sparklines={sparklines} logged={logged} selected={selected} onSelect={select} columns={columns} by={by} onOrder={(order) => { change(columns, order); }} group={group} />}
      {local && query.hasNextPage && <p className="quiet after">Only the {integer(jobs.length)} jobs that are loaded are ordered by {headOf(by.replace(/^-/, ""))}.</p>}
      {group !== "" && query.hasNextPage && <p className="quiet after">Groups are of the {integer(jobs.length)} jobs that are loaded.</p>}
      {query.isSuccess && jobs.length === 0 && <Nothing filtered={filtered} onClear={() => { setFilter({ ...NO_FILTER, sort: filter.sort }); }} />}
      {query.hasNextPage && (
        <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          {query.isFetchingNextPage ? "Loading…" : "Load more"}
        </button>
      )}
    </main>
  );
}

/** A job whose metric changes between two pages may be on both. */
const unique = (jobs: readonly Job[]) => [...new Map(jobs.map((job) => [job.id, job])).values()];

function useJobs(filter: JobFilter) {
  const label = useDebounced(filter.label);
  // A label without `=` is not complete yet, so it is not sent.
  const settled = { ...filter, text: useDebounced(filter.text), label: label.includes("=") ? label : "" };
  return useInfiniteQuery({
    queryKey: ["jobs", settled],
    queryFn: ({ pageParam, signal }) => listJobs(settled, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    // All pages are read again: the more of them, the more rarely.
    refetchInterval: ({ state }) => POLL_MS * (state.data?.pages.length ?? 1),
    placeholderData: (before) => before,
  });
}

/** One request for all rows that can have a curve. */
function useSparklines(jobs: readonly Job[]) {
  const ids = jobs.filter((job) => job.progress !== null).map((job) => job.id);
  return useQuery({
    queryKey: ["sparklines", ids],
    queryFn: ({ signal }) => getSparklines(ids, signal),
    enabled: ids.length > 0,
    refetchInterval: CURVES_MS,
    placeholderData: (before) => before,
  }).data;
}

/** One request for the chosen metrics of up to 200 jobs. */
function useLogged(jobs: readonly Job[], columns: readonly string[]) {
  const names = [...new Set(columns.flatMap((path) => loggedName(path) ?? []))];
  const ids = jobs.flatMap(({ id, startedAt }) => (startedAt === null ? [] : [id]));
  return useQuery({
    queryKey: ["logged-values", ids, names],
    queryFn: ({ signal }) => getLoggedValues(ids, names, signal),
    enabled: names.length > 0 && ids.length > 0,
    refetchInterval: CURVES_MS * Math.max(1, Math.ceil(ids.length / MANY)),
    placeholderData: (before) => before,
  });
}

function Selection({ jobs, onNone, onDeleted, onSome }: { jobs: readonly Job[]; onNone: () => void; onDeleted: (jobs: readonly Job[]) => void; onSome: (jobs: readonly Job[]) => void }) {
  const lives = jobs.every((job) => job.deletedAt === null);
  return (
    <div className="selection card" role="group" aria-label="Selected jobs">
      <span>{jobs.length} selected</span>
      {lives && jobs.length >= 2 && jobs.length <= MAX_COMPARED && <Link className="button" href={compareAddress(jobs.map((job) => job.id))}>Compare</Link>}
      {lives && <BulkPause jobs={jobs} onDone={onNone} />}
      {lives && <BulkResume jobs={jobs} onDone={onNone} />}
      {lives && <BulkCancel jobs={jobs} onDone={onNone} />}
      {lives && <BulkDelete jobs={jobs} onDone={onDeleted} onSome={onSome} />}
      <BulkRestore jobs={jobs} onDone={onNone} />
      <button className="button" onClick={onNone}>Clear selection</button>
    </div>
  );
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  if (!filtered) {
    return (
      <Empty title="No jobs yet">
        <p>Submit one. It then appears here:</p>
        <Link className="button" href="/new">New job</Link>
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

/** The filter as the address has it; what is as usual is not in it. */
function useFilter(): [JobFilter, (filter: JobFilter) => void] {
  const [params, setParams] = useSearchParams();
  const sort = isSort(params.get("sort") ?? "") ? (params.get("sort") ?? "") : NO_FILTER.sort;
  const change = (filter: JobFilter) => {
    // Another order replaces that of the loaded jobs.
    const others = (name: string) => !(name in NO_FILTER) && (name !== "by" || filter.sort === sort);
    const entries = Object.entries(filter).filter(([name, value]) => value !== NO_FILTER[name as keyof JobFilter]);
    setParams((known) => new URLSearchParams([...entries, ...[...known].filter(([name]) => others(name))]), { replace: true });
  };
  const text = (name: keyof JobFilter) => params.get(name) ?? "";
  return [{ state: text("state"), text: text("text"), label: text("label"), deleted: text("deleted"), sort }, change];
}
