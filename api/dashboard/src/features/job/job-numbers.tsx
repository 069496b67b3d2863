/** How a job stands: its newest numbers, and why it is in its state. */

import type { Job } from "../../api/jobs";
import { trains } from "../../model/checkpoints";
import { duration, integer, loss, secondsBetween, short } from "../../model/format";
import { isFinal } from "../../model/jobs";
import "./job-numbers.css";

/** `validation`: the newest validation loss. */
export function JobNumbers({ job, validation }: { job: Job; validation: number | null }) {
  return (
    <div className="job-numbers card">
      {trains(job) ? <TrainingNumbers job={job} validation={validation} /> : <ProgramNumbers job={job} />}
    </div>
  );
}

function TrainingNumbers({ job, validation }: { job: Job; validation: number | null }) {
  return (
    <>
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

function TimeLeft({ job }: { job: Job }) {
  if (!isFinal(job.state)) return <Number name="Time left" value={duration(job.progress?.etaSeconds ?? null)} />;
  return <Number name="Took" value={duration(secondsBetween(job.startedAt, job.finishedAt))} />;
}

function Number({ name, value }: { name: string; value: string }) {
  return (
    <div className="job-number">
      <span className="quiet">{name}</span>
      <strong className="number" data-fact={name}>{value}</strong>
    </div>
  );
}

/** Why the job is in its state, in full: a failed job's message holds the traceback. A code alone is in the history. */
export function Why({ job }: { job: Job }) {
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
