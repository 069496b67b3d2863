/** The top of a job's page, which stays in view: its name, state and progress, what can be done with it, and its tabs. */

import type { ReactNode } from "react";
import type { Job } from "../../api/jobs";
import type { Connection } from "../../api/sse";
import { StateBadge } from "../../components/state-badge";
import { trains } from "../../model/checkpoints";
import { integer } from "../../model/format";
import "./job-head.css";

export interface JobHeadProps {
  job: Job;
  connection: Connection;
  action: ReactNode;
  /** Its tabs. */
  children: ReactNode;
}

export function JobHead({ job, connection, action, children }: JobHeadProps) {
  return (
    <header className="job-head" data-state={job.state}>
      <div className="job-head-name">
        <h1 title={job.name}>{job.name}</h1>
        <StateBadge state={job.state} />
        {job.pinned && <span className="quiet">pinned</span>}
        {connection === "lost" && <span className="job-head-link" role="status">connection lost, reconnecting…</span>}
        {trains(job) && <Progress job={job} />}
        <div className="job-head-action">{action}</div>
      </div>
      {children}
    </header>
  );
}

function Progress({ job: { progress } }: { job: Job }) {
  const part = progress && progress.steps > 0 ? progress.step / progress.steps : 0;
  return (
    <div className="job-head-progress">
      <progress aria-label="Progress" max={progress?.steps ?? 1} value={progress?.step ?? 0} />
      <div>
        <span className="quiet">Step </span>
        <strong className="number">{integer(progress?.step ?? 0)}</strong>
        {progress && <span className="quiet number"> of {integer(progress.steps)}</span>}
        <span className="quiet number"> · {Math.floor(part * 100)} %</span>
      </div>
    </div>
  );
}
