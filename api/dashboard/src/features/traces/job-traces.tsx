/** A job's traces: starts them, and shows one step of one of them. */

import { useState } from "react";
import type { Job } from "../../api/jobs";
import { perfettoAddress, type StepTime, type Trace } from "../../api/traces";
import { ProblemNotice } from "../../components/problem-notice";
import { integer, moment } from "../../model/format";
import { isFinal } from "../../model/jobs";
import { PipelineTimeline } from "./pipeline-timeline";
import { TraceTable } from "./trace-table";
import { useStartTrace, useSpans, useSummary, useTraces } from "./use-traces";
import "./traces.css";

export function JobTraces({ job }: { job: Job }) {
  const [selected, setSelected] = useState<string | null>(null);
  const traces = useTraces(job.id, isFinal(job.state));
  const start = useStartTrace(job.id, () => { setSelected(null); });
  const all = traces.data ?? [];
  const newest = all[0];
  const recording = newest?.state === "open" ? newest : null;
  const finished = all.filter(({ state, parts }) => state !== "open" && parts > 0);
  const shown = finished.find(({ id }) => id === selected) ?? finished[0];
  return (
    <section className="card job-traces" aria-labelledby="traces-title">
      <header className="card-head">
        <h2 id="traces-title">Step trace</h2>
        {recording && <Recording trace={recording} />}
        <button className="button small" disabled={job.state !== "running" || recording !== null || start.isPending} onClick={() => { start.mutate(); }}>
          Trace 3 steps
        </button>
      </header>
      <div className="job-traces-body">
        {start.error && <ProblemNotice problem={start.error} />}
        {newest?.state === "failed" && <p className="bad">The last trace failed: {newest.message}</p>}
        {!shown && !recording && <p className="quiet">A trace records what every rank does in the next steps: forward and backward passes, communication and waiting.</p>}
        {shown && <TraceView key={shown.id} job={job.id} trace={shown} traces={finished} onTrace={setSelected} />}
      </div>
    </section>
  );
}

function Recording({ trace }: { trace: Trace }) {
  return (
    <span className="job-traces-recording quiet" role="status">
      Recording {trace.steps} steps… <progress aria-label="Parts received" max={Math.max(1, trace.partsExpected)} value={trace.parts} />
    </span>
  );
}

interface TraceViewProps {
  job: string;
  trace: Trace;
  traces: readonly Trace[];
  onTrace: (id: string) => void;
}

function TraceView({ job, trace, traces, onTrace }: TraceViewProps) {
  const [selected, setSelected] = useState<number | null>(null);
  const overview = useSummary(job, trace.id, trace.parts, selected);
  const steps = overview.data?.steps ?? [];
  const step = steps.find((one) => one.step === selected) ?? steps[0];
  return (
    <>
      <div className="job-traces-choice">
        <label><span className="label">Trace</span>
          <select value={trace.id} onChange={(event) => { onTrace(event.target.value); }}>
            {traces.map((one) => <option key={one.id} value={one.id}>{moment(one.requestedAt)}{one.firstStep === null ? "" : `, steps ${one.firstStep} to ${one.lastStep}`}</option>)}
          </select>
        </label>
        {step && (
          <label><span className="label">Step</span>
            <select value={step.step} onChange={(event) => { setSelected(Number(event.target.value)); }}>
              {steps.map((one) => <option key={one.step} value={one.step}>{one.step}</option>)}
            </select>
          </label>
        )}
        <a className="button small" href={perfettoAddress(job, trace.id)} download>Download for Perfetto</a>
      </div>
      {overview.error && <ProblemNotice problem={overview.error} stale={overview.data !== undefined} />}
      {step && <StepView key={step.step} job={job} trace={trace.id} step={step} />}
      {overview.data && overview.data.ranks.length > 0 && (
        <details>
          <summary>Times by rank, {selected === null ? "means over the traced steps" : `of step ${selected}`}</summary>
          <TraceTable ranks={overview.data.ranks} />
        </details>
      )}
    </>
  );
}

function StepView({ job, trace, step }: { job: string; trace: string; step: StepTime }) {
  const { whole, detail, onRange } = useSpans(job, trace, step.step);
  const bubble = { measured: step.bubbleMeasured, ideal: step.bubbleIdeal };
  return (
    <>
      {whole.error && <ProblemNotice problem={whole.error} stale={whole.data !== undefined} />}
      {whole.isLoading && <p className="quiet">Loading the step…</p>}
      {step.slowestRank !== null && step.slowerBy !== null && (
        <p>Rank {step.slowestRank} had the most compute time: {(step.slowerBy * 1000).toFixed(1)} ms more than the median of the others.</p>
      )}
      {whole.data && <PipelineTimeline whole={whole.data} detail={detail} bubble={bubble} onRange={onRange} />}
      {whole.data && (detail ?? whole.data).dropped > 0 && (
        <p className="quiet">The {integer((detail ?? whole.data).dropped)} shortest spans in view are not drawn. Zoom in to see them. The file for Perfetto contains all recorded spans.</p>
      )}
      {whole.data && whole.data.unrecorded > 0 && <p className="quiet">The {integer(whole.data.unrecorded)} shortest spans of this step were not recorded.</p>}
    </>
  );
}
