/** The top of a job's page: its name, state and progress. */

import type { ReactNode } from "react";
import type { Job } from "../../api/jobs";
import type { Connection } from "../../api/sse";
import { StateBadge } from "../../components/state-badge";
import { duration, integer, loss, secondsBetween, short } from "../../model/format";
import { trains } from "../../model/checkpoints";
import { isFinal } from "../../model/jobs";
import "./job-head.css";

export interface JobHeadProps {
  job: Job;
  /** The newest validation loss. */
  validation: number | null;
  connection: Connection;
  action: ReactNode;
}

export function JobHead({ job, validation, connection, action }: JobHeadProps) {
  return (
    <header className="job-head" data-state={job.state}>
      <div className="job-head-name">
        <h1>{job.name}</h1>
        <StateBadge state={job.state} />
        {connection === "lost" && <span className="job-head-link" role="status">connection lost, reconnecting…</span>}
        <div className="job-head-action">{action}</div>
      </div>
      <Why job={job} />
      <div className="job-head-numbers card">
        {trains(job) ? <TrainingNumbers job={job} validation={validation} /> : <ProgramNumbers job={job} />}
      </div>
    </header>
  );
}

function TrainingNumbers({ job, validation }: { job: Job; validation: number | null }) {
  return (
    <>
      <Progress job={job} />
      <Number name="Loss" value={loss(job.progress?.loss ?? null)} />
      <Number name="Validation loss" value={loss(validation)} />
      <Number name="Tokens/s" value={integer(job.progress?.tokensPerSecond ?? null)} />
      <Number name="Tokens" value={short(job.progress?.tokens ?? null)} />
      <TimeLeft job={job} />
    </>
  );
}

/** Only the program knows how far it is. */
function ProgramNumbers({ job }: { job: Job }) {
  return (
    <>
      <Number name="Ranks" value={integer(job.worldSize)} />
      <Number name="Attempt" value={integer(job.attempt)} />
      {isFinal(job.state) && <TimeLeft job={job} />}
    </>
  );
}

/** Why the job is in its state, in full: a failed job's message holds the traceback. A code alone is in the history. */
function Why({ job }: { job: Job }) {
  const failed = job.state === "failed";
  if (!job.message && !failed) return null;
  const [first = "", ...rest] = (job.message ?? "").split("\n");
  return (
    <div className={failed ? "why why-failed" : "why"} role={failed ? "alert" : "note"}>
      {job.reason && <code>{job.reason}</code>} {first}
      {rest.length > 0 && <pre tabIndex={0} aria-label="Details">{rest.join("\n").trim()}</pre>}
    </div>
  );
}

function Progress({ job }: { job: Job }) {
  const { progress } = job;
  const part = progress && progress.steps > 0 ? progress.step / progress.steps : 0;
  return (
    <div className="job-head-progress">
      <div>
        <span className="quiet">Step </span>
        <strong className="number">{integer(progress?.step ?? 0)}</strong>
        {progress && <span className="quiet number"> of {integer(progress.steps)}</span>}
        <span className="number percent">{Math.floor(part * 100)} %</span>
      </div>
      <progress aria-label="Progress" max={progress?.steps ?? 1} value={progress?.step ?? 0} />
    </div>
  );
}

function TimeLeft({ job }: { job: Job }) {
  if (!isFinal(job.state)) return <Number name="Time left" value={duration(job.progress?.etaSeconds ?? null)} />;
  return <Number name="Took" value={duration(secondsBetween(job.startedAt, job.finishedAt))} />;
}

function Number({ name, value }: { name: string; value: string }) {
  return (
    <div className="job-head-number">
      <span className="quiet">{name}</span>
      <strong className="number" data-fact={name}>{value}</strong>
    </div>
  );
}
