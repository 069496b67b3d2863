/** `/jobs/:id`: one job, live. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { Link } from "wouter";
import { Chart, type Line } from "../components/chart";
import { JobFacts, JobSummary } from "../components/job-facts";
import { JobHead } from "../components/job-head";
import { LogTail } from "../components/log-tail";
import { ProblemNotice } from "../components/problem-notice";
import { SpecView } from "../components/spec-view";
import { Timeline } from "../components/timeline";
import { integer, loss } from "../services/format";
import { Problem } from "../services/http";
import { getJob, isFinal, type Job } from "../services/jobs";
import type { Live } from "../services/live";
import { CancelJob } from "./cancel-job";
import { JobTraces } from "./job-traces";
import { useLive } from "./use-live";
import { useLogs } from "./use-logs";
import { useNow } from "./use-now";
import { useTitle } from "./use-title";

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
  const onState = useCallback(() => void client.invalidateQueries({ queryKey: ["job"] }), [client]);
  const live = useLive(job.id, onState);
  const shown = withNewestStep(job, live);
  const summary = live.summary ?? job.summary;
  return (
    <>
      <JobHead job={shown} validation={live.evals.at(-1)?.loss ?? null} link={live.link} action={<CancelJob job={job} />} />
      {live.problem && <ProblemNotice problem={live.problem} stale />}
      <div className="columns">
        <div className="stack">
          <Charts live={live} ended={isFinal(job.state)} />
          <JobTraces job={job} />
          <Logs job={job} />
          <SpecView spec={job.spec} />
        </div>
        <div className="stack">
          {summary && <JobSummary summary={summary} />}
          <JobFacts job={job} plan={live.plan} now={now} />
          <Timeline entries={live.entries} />
        </div>
      </div>
    </>
  );
}

/** The stream is ahead of the poll: the numbers on top are those at the end of the curve. */
function withNewestStep(job: Job, live: Live): Job {
  const newest = live.curve.points.at(-1);
  if (!job.progress || !newest || newest.step <= job.progress.step) return job;
  const { step, loss: newestLoss, tokensPerSecond } = newest;
  return { ...job, progress: { ...job.progress, step, loss: newestLoss, tokensPerSecond } };
}

const GROUP = "job";

function Charts({ live, ended }: { live: Live; ended: boolean }) {
  const { points } = live.curve;
  const lossLines = useMemo(
    (): Line[] => [
      { label: "Train", colour: "blue", points: points.map((p) => ({ x: p.step, y: p.loss })) },
      { label: "Validation", colour: "orange", dots: true, points: live.evals.map((e) => ({ x: e.step, y: e.loss })) },
    ],
    [points, live.evals],
  );
  const speedLines = useMemo(
    (): Line[] => [{ label: "Tokens/s", colour: "green", points: points.map((p) => ({ x: p.step, y: p.tokensPerSecond })) }],
    [points],
  );
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last) {
    return <p className="card pad quiet">{ended ? "This job ended before its first step." : "The curves begin with the first step."}</p>;
  }
  return (
    <div className="charts">
      <Chart
        title="Loss (nats per token)"
        summary={`Training loss ${loss(first.loss)} at step ${first.step}, ${loss(last.loss)} at step ${last.step}.`}
        lines={lossLines}
        format={loss}
        group={GROUP}
      />
      <Chart
        title="Tokens per second"
        summary={`${integer(last.tokensPerSecond)} at step ${last.step}.`}
        lines={speedLines}
        format={integer}
        group={GROUP}
      />
    </div>
  );
}

/** A control plane that is away is said once, by the job itself. */
const isPassing = (problem: Error) => problem instanceof Problem && problem.passing;

function Logs({ job }: { job: Job }) {
  const [rank, setRank] = useState<number | null>(null);
  const ended = isFinal(job.state);
  const { lines, problem, loading } = useLogs(job.id, rank, ended);
  const nothing = loading ? "Loading…" : ended ? "This job wrote nothing." : "Nothing yet: lines appear as the ranks write them.";
  return (
    <>
      {problem && !isPassing(problem) && <ProblemNotice problem={problem} />}
      <LogTail lines={lines} worldSize={job.worldSize ?? 1} rank={rank} onRank={setRank} nothing={nothing} />
    </>
  );
}
