/** `/jobs/:id`: one job, live. Each section is a component of its own; this file says only which there are, and in what order. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { Link } from "wouter";
import { getJob, type Job } from "../api/jobs";
import { getPlan } from "../api/plan";
import { ProblemNotice } from "../components/problem-notice";
import { JobActions } from "../features/job/job-actions";
import { JobCharts } from "../features/job/job-charts";
import { JobCheckpoints } from "../features/job/job-checkpoints";
import { JobFacts, JobSummary } from "../features/job/job-facts";
import { JobHead } from "../features/job/job-head";
import { JobHistory } from "../features/job/job-history";
import { JobIncidents } from "../features/job/job-incidents";
import { JobLogs } from "../features/job/job-logs";
import { JobParent } from "../features/job/job-parent";
import { JobResources } from "../features/job/job-resources";
import { JobTimeline } from "../features/job/job-timeline";
import { LoggedMetrics } from "../features/job/logged-metrics";
import { SpecView } from "../features/job/spec-view";
import { useLive } from "../features/job/use-live";
import { JobRanks } from "../features/ranks/job-ranks";
import { JobTraces } from "../features/traces/job-traces";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import { trains } from "../model/checkpoints";
import { isFinal } from "../model/jobs";
import type { Live } from "../model/live";

const POLL_MS = 2000;

export function JobPage({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => getJob(id, signal),
    refetchInterval: ({ state }) => (state.data && isFinal(state.data.state) ? false : POLL_MS),
  });
  useTitle(query.data ? `${query.data.name} · ${query.data.state}` : "Job");
  return (
    <main className="page">
      <nav aria-label="Breadcrumb" className="breadcrumb">
        <Link href="/">Jobs</Link> <span aria-hidden="true">/</span> {query.data?.name ?? id}
      </nav>
      {!query.data && <h1 className="before">{id}</h1>}
      {query.error && <ProblemNotice problem={query.error} stale={query.data !== undefined} />}
      {query.error && !query.data && <Link className="button after" href="/">All jobs</Link>}
      {query.isLoading && <p className="quiet">Loading the job…</p>}
      {query.data && <JobView key={query.data.id} job={query.data} />}
    </main>
  );
}

function JobView({ job }: { job: Job }) {
  const client = useQueryClient();
  const now = useNow();
  const onState = useCallback(() => {
    for (const about of ["job", "timeline", "incidents"]) void client.invalidateQueries({ queryKey: [about] });
  }, [client]);
  const live = useLive(job.id, onState);
  const plan = useQuery({ queryKey: ["plan", job.id], queryFn: ({ signal }) => getPlan(job.id, signal), staleTime: Infinity });
  const shown = withNewestStep(job, live);
  const summary = live.summary ?? job.summary;
  return (
    <>
      <JobHead job={shown} validation={live.evals.at(-1)?.loss ?? null} connection={live.connection} action={<JobActions job={job} />} />
      {live.problem && <ProblemNotice problem={live.problem} stale />}
      <div className="columns">
        <div className="stack">
          <JobTimeline id={job.id} now={now} />
          {trains(job) ? <JobCharts id={job.id} live={live} ended={isFinal(job.state)} /> : <LoggedMetrics id={job.id} ended={isFinal(job.state)} />}
          {/* What happens inside a step: sections that need the charts' width. Of a program's steps only its metrics are known. */}
          {trains(job) && (
            <>
              <JobRanks id={job.id} newest={live.ranks} ended={isFinal(job.state)} />
              <JobTraces job={job} />
              <JobResources id={job.id} ended={isFinal(job.state)} />
            </>
          )}
          <JobIncidents job={job} />
          {trains(job) && <JobCheckpoints job={job} now={now} />}
          <JobLogs job={job} />
          {job.parent && <JobParent job={job} parent={job.parent} />}
          <SpecView spec={job.spec} />
        </div>
        <div className="stack">
          {summary && <JobSummary summary={summary} />}
          <JobFacts job={job} plan={live.plan ?? plan.data ?? null} now={now} />
          <JobHistory id={job.id} live={live.entries} />
        </div>
      </div>
    </>
  );
}

/** The stream is ahead of the poll: the numbers on top are those at the end of the curve. */
function withNewestStep(job: Job, live: Live): Job {
  const { newest } = live;
  if (!job.progress || !newest || newest.step <= job.progress.step) return job;
  const { step, values } = newest;
  return { ...job, progress: { ...job.progress, step, loss: values.loss, tokensPerSecond: values.tokens_per_s } };
}
