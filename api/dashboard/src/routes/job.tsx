/** `/jobs/:id` and `/jobs/:id/:tab`: one job, live. Only what the open tab shows is loaded, polled and streamed. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, useCallback, useEffect } from "react";
import { Link, useLocation } from "wouter";
import { isRefused, Problem } from "../api/http";
import { getJob, type Job } from "../api/jobs";
import { untilRead } from "../api/retrying";
import { LoadedPart } from "../components/loaded-part";
import { ProblemNotice } from "../components/problem-notice";
import { JobActions } from "../features/job/job-actions";
import { JobHead } from "../features/job/job-head";
import { UndeleteJob } from "../features/job/undelete-job";
import { JobTabs } from "../features/job/job-tabs";
import { type LiveJob, useLive } from "../features/job/use-live";
import { useScrollOf, useSearches } from "../features/job/use-tab-state";
import { useTitle } from "../hooks/use-title";
import { jobAddress } from "../model/addresses";
import { isFinal } from "../model/jobs";
import { type JobTab, streamOf, TAB_NAMES, tabOf } from "../model/job-tabs";
import type { Live } from "../model/live";

const JobOverview = lazy(async () => ({ default: (await import("../features/job/job-overview")).JobOverview }));
const JobMetrics = lazy(async () => ({ default: (await import("../features/job/job-metrics")).JobMetrics }));
const JobSystem = lazy(async () => ({ default: (await import("../features/job/job-system")).JobSystem }));
const JobRanks = lazy(async () => ({ default: (await import("../features/ranks/job-ranks")).JobRanks }));
const JobResources = lazy(async () => ({ default: (await import("../features/job/job-resources")).JobResources }));
const JobTraces = lazy(async () => ({ default: (await import("../features/traces/job-traces")).JobTraces }));
const JobLogs = lazy(async () => ({ default: (await import("../features/job/job-logs")).JobLogs }));
const JobCheckpoints = lazy(async () => ({ default: (await import("../features/job/job-checkpoints")).JobCheckpoints }));
const JobProfiles = lazy(async () => ({ default: (await import("../features/ranks/job-profiles")).JobProfiles }));
const JobFiles = lazy(async () => ({ default: (await import("../features/job/job-files")).JobFiles }));
const JobSpec = lazy(async () => ({ default: (await import("../features/job/job-spec")).JobSpec }));

const POLL_MS = 2000;
/** Out of sight: the title has the job's state. */
const HIDDEN_MS = 10_000;

/** `tab`: its name in the address. */
export function JobPage({ id, tab }: { id: string; tab: string | undefined }) {
  const query = useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => getJob(id, signal),
    refetchInterval: (query) => ((query.state.data && isFinal(query.state.data.state)) || isRefused(query.state.error) ? untilRead(query) : document.hidden ? HIDDEN_MS : POLL_MS),
    refetchIntervalInBackground: true,
  });
  const deleted = query.error instanceof Problem && query.error.code === "job_deleted";
  const job = deleted || query.data?.id !== id ? undefined : query.data;
  useIdInAddress(id, query.data);
  const open = job ? tabOf(job, tab) : null;
  useTitle(job ? `${job.name} · ${open ? TAB_NAMES[open] : "Not found"} · ${job.state}` : "Job");
  return (
    <main className="page">
      <nav aria-label="Breadcrumb" className="breadcrumb">
        <Link href="/">Jobs</Link> <span aria-hidden="true">/</span> {job?.name ?? id}
      </nav>
      {!job && <h1 className="before">{id}</h1>}
      {query.error && <ProblemNotice problem={query.error} stale={job !== undefined} />}
      {deleted && <UndeleteJob id={id} />}
      {query.error && !job && <Link className="button after" href="/">All jobs</Link>}
      {query.isLoading && <p className="quiet">Loading the job…</p>}
      {job && <JobView key={job.id} job={job} tab={open} />}
    </main>
  );
}

/** A name in the address is replaced by the id of the job that it names: later it may name another job. */
function useIdInAddress(name: string, job: Job | undefined): void {
  const client = useQueryClient();
  const [address, navigate] = useLocation();
  useEffect(() => {
    if (job === undefined || job.id === name) return;
    client.setQueryData(["job", job.id], job);
    navigate(address.replace(/^\/jobs\/[^/]+/, () => jobAddress(job.id)) + location.search, { replace: true });
  }, [client, navigate, address, name, job]);
}

function JobView({ job, tab }: { job: Job; tab: JobTab | null }) {
  const client = useQueryClient();
  const searches = useSearches(tab);
  useScrollOf(tab);
  const onState = useCallback(() => {
    for (const about of ["job", "timeline", "incidents"]) void client.invalidateQueries({ queryKey: [about] });
  }, [client]);
  const part = streamOf(job, tab);
  const live = useLive(job.id, part, onState);
  // What an earlier stream had may be of an attempt that another has replaced.
  const shown = live.connection === "live" ? withNewestStep(job, live) : job;
  return (
    <>
      <JobHead job={shown} connection={live.connection} action={<JobActions job={job} />}>
        <JobTabs job={job} open={tab} searches={searches} />
      </JobHead>
      {live.problem && <ProblemNotice problem={live.problem} stale />}
      <LoadedPart key={tab}><OpenTab tab={tab} job={shown} live={live} /></LoadedPart>
    </>
  );
}

function OpenTab({ tab, job, live }: { tab: JobTab | null; job: Job; live: LiveJob }) {
  const ended = isFinal(job.state);
  switch (tab) {
    case "overview": return <JobOverview job={job} live={live} />;
    case "metrics": return <JobMetrics job={job} live={live} />;
    case "system": return <JobSystem job={job} />;
    case "ranks": return <div className="stack"><JobRanks job={job} newest={live.ranks} /><JobProfiles job={job} /><JobResources id={job.id} ended={ended} /></div>;
    case "traces": return <JobTraces job={job} />;
    case "logs": return <JobLogs job={job} />;
    case "checkpoints": return <JobCheckpoints job={job} />;
    case "files": return <div className="stack"><JobFiles job={job} /><JobProfiles job={job} /></div>;
    case "spec": return <JobSpec job={job} />;
    case null: return <p className="card pad">This job has no tab of this name. <Link href={jobAddress(job.id)}>Overview</Link></p>;
  }
}

/** The stream is ahead of the poll: the numbers on top are those at the end of the curve. */
function withNewestStep(job: Job, live: Live): Job {
  const { newest } = live;
  if (!job.progress || !newest || newest.step <= job.progress.step) return job;
  const { step, values } = newest;
  return { ...job, progress: { ...job.progress, step, loss: values.loss, tokensPerSecond: values.tokens_per_s } };
}
