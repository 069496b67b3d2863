/** What a job is: its layout, its batch, where and when it runs. */

import { Link } from "wouter";
import type { Plan } from "../../api/events";
import { certificatePath, type Job, type JobCertificate, type Summary, type TimeLimit } from "../../api/jobs";
import { Facts } from "../../components/facts";
import { TimeAgo } from "../../components/time-ago";
import { jobAddress, sweepAddress } from "../../model/addresses";
import { duration, integer, layoutOf, loss, precisionOf, secondsBetween, short } from "../../model/format";
import { isFinal } from "../../model/jobs";
import { SWEEP_LABEL, TRIAL_LABEL } from "../../model/sweeps";

export function JobFacts({ job, plan, now }: { job: Job; plan: Plan | null; now: Date }) {
  const lasted = secondsBetween(job.startedAt, job.finishedAt ?? now);
  const labels = Object.entries(job.labels);
  return (
    <Facts
      title="Job"
      facts={[
        { name: "Layout", value: layoutOf(job.layout, job.layoutChoice) },
        { name: "Batch", value: job.batch },
        { name: "Ranks", value: job.worldSize === null ? null : `${job.worldSize}${job.device ? ` × ${job.device}` : ""}` },
        { name: "Parameters", value: plan?.parameters ? short(plan.parameters) : null },
        { name: "Precision", value: plan?.precision ? precisionOf(plan.precision, plan.compiled, plan.choices) : null },
        { name: "Tokens per step", value: plan?.tokensPerStep ? integer(plan.tokensPerStep) : null },
        { name: "Corpus", value: plan?.trainTokens ? `${short(plan.trainTokens)} tokens` : null },
        { name: "Submitted by", value: job.user === "" ? null : job.user },
        { name: "Created", value: <TimeAgo at={job.createdAt} now={now} /> },
        { name: "Since its start", value: job.startedAt && !job.finishedAt ? duration(lasted) : null },
        { name: "Time left", value: job.timeLimit && !isFinal(job.state) ? timeLeft(job.timeLimit, now) : null },
        { name: "From start to end", value: job.startedAt && job.finishedAt ? duration(lasted) : null },
        { name: "Device time", value: job.deviceSeconds === null ? null : duration(job.deviceSeconds) },
        { name: "Parent", value: job.parent && <Link href={jobAddress(job.parent)}>{job.parent}</Link> },
        { name: "Sweep", value: job.labels[SWEEP_LABEL] ? <Sweep id={job.labels[SWEEP_LABEL]} trial={job.labels[TRIAL_LABEL]} /> : null },
        { name: "Retry of", value: job.retryOf && <Link href={jobAddress(job.retryOf)}>{job.retryOf}</Link> },
        { name: "Retried by", value: job.retriedBy && <Link href={jobAddress(job.retriedBy)}>{job.retriedBy}</Link> },
        { name: "Certificate", value: job.certificate && <Proof id={job.id} of={job.certificate} /> },
        { name: "Attempt", value: job.attempt > 1 ? `${job.attempt} (${job.restarts} restarts)` : null },
        { name: "Checkpoint", value: !job.summary && job.checkpoint && <code>{job.checkpoint}</code> },
        {
          name: "Labels",
          value: labels.length > 0 ? labels.map(([key, value]) => <code key={key} className="label">{key}={value}</code>) : null,
        },
        { name: "Id", value: <code>{job.id}</code> },
      ]}
    />
  );
}

/** Of `policy.max_duration`; it runs while the job holds devices. */
function timeLeft({ limit, used, endsAt }: TimeLimit, now: Date) {
  const left = endsAt === null ? Math.max(0, limit - used) : secondsBetween(now, endsAt);
  return `${duration(left)} of ${duration(limit)}${endsAt === null ? ", while it holds devices" : ""}`;
}

/** Whether the layout computes what one process computes, with a link to every number. */
function Proof({ id, of }: { id: string; of: JobCertificate }) {
  const result = `${of.equal ? "Equal to" : "Different from"} one process${of.extra ? ` that ${of.extra}` : ""}`;
  return <><a href={certificatePath(id)}>{result}</a>{` (${of.layout}; key ${of.key})`}</>;
}

/** The sweep of which the job is a trial. */
function Sweep({ id, trial }: { id: string; trial: string | undefined }) {
  return <><Link href={sweepAddress(id)}>{id}</Link>{trial !== undefined && `, trial ${trial}`}</>;
}

export function JobSummary({ summary }: { summary: Summary }) {
  return (
    <Facts
      title="Summary"
      facts={[
        { name: "Training loss", value: `${loss(summary.firstLoss)} → ${loss(summary.lastLoss)}${ofSteps(summary.lastSteps)}` },
        { name: "Validation loss", value: loss(summary.validationLoss) },
        { name: "Unigram baseline", value: summary.unigramLoss === null ? null : `${loss(summary.unigramLoss)} (same data)` },
        { name: "Tokens", value: integer(summary.tokens) },
        { name: "Tokens/s", value: integer(summary.tokensPerSecond) },
        { name: "Time to first step", value: duration(summary.timeToFirstStep) },
        { name: "Checkpoint", value: summary.checkpoint && <code>{summary.checkpoint}</code> },
        { name: "Hugging Face folder", value: summary.export && <code>{summary.export}</code> },
      ]}
    />
  );
}

const ofSteps = (count: number | null) => (count !== null && count > 1 ? ` (mean of the last ${count} steps)` : "");
