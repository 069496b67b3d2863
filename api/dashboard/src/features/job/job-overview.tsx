/** The tab Overview: how a job stands, what it is, and what has happened to it. */

import type { Job } from "../../api/jobs";
import { useNow } from "../../hooks/use-now";
import { trains } from "../../model/checkpoints";
import { MainCharts } from "./job-charts";
import { JobFacts, JobSummary } from "./job-facts";
import { JobHistory } from "./job-history";
import { JobIncidents } from "./job-incidents";
import { JobNotes } from "./job-notes";
import { JobNumbers, Why } from "./job-numbers";
import { JobTimeline } from "./job-timeline";
import type { LiveJob } from "./use-live";
import { usePlan } from "./use-plan";

export function JobOverview({ job, live }: { job: Job; live: LiveJob }) {
  const now = useNow();
  const plan = usePlan(job.id);
  const summary = live.summary ?? job.summary;
  return (
    <div className="stack">
      <Why job={job} />
      <JobNumbers job={job} validation={live.evals.at(-1)?.loss ?? null} />
      <div className="columns">
        <div className="stack">
          <JobTimeline id={job.id} now={now} />
          {trains(job) && <MainCharts job={job} live={live} />}
          <JobIncidents job={job} />
        </div>
        <div className="stack">
          {summary && <JobSummary summary={summary} />}
          <JobNotes job={job} />
          <JobFacts job={job} plan={plan} now={now} />
          <JobHistory id={job.id} live={live.entries} />
        </div>
      </div>
    </div>
  );
}
