/** `/compare?job=…&job=…&by=tokens`: runs over each other, and where their specs differ. All of it is in the address. */

import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "wouter";
import type { Job } from "../api/jobs";
import { getRun, type Run, type RunPoint } from "../api/runs";
import { type Along, Chart, type Line } from "../components/chart";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { SpecDiff } from "../components/spec-diff";
import { JobPicker } from "../features/compare/job-picker";
import { RunTable } from "../features/compare/run-table";
import { useTitle } from "../hooks/use-title";
import { MAX_COMPARED } from "../model/addresses";
import { duration, integer, loss, short } from "../model/format";
import { isFinal } from "../model/jobs";
import { AXES, type Axis, differences, line } from "../model/runs";
import "../features/compare/compare.css";

const POLL_MS = 5000;
const GROUP = "compare";
const COLOURS = ["blue", "orange", "green", "violet", "red", "grey"] as const;

const ALONG: Readonly<Record<Axis, Along>> = {
  step: { name: "Step", format: integer },
  tokens: { name: "Tokens", format: short },
  time: { name: "Time", format: duration },
};

export function ComparePage() {
  useTitle("Compare");
  const { ids, axis, change } = useComparison();
  const queries = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["run", id],
      queryFn: ({ signal }: { signal: AbortSignal }) => getRun(id, signal),
      refetchInterval: ({ state }: { state: { data?: Run | undefined } }) => (state.data && isFinal(state.data.job.state) ? false : POLL_MS),
    })),
  });
  const runs = queries.flatMap(({ data }, index) => (data ? [{ ...data, colour: COLOURS[index] ?? "grey" }] : []));
  const problem = queries.find(({ error }) => error !== null)?.error;
  return (
    <main className="page">
      <div className="page-head">
        <h1>Compare</h1>
        <By axis={axis} onAxis={(by) => { change(ids, by); }} />
      </div>
      {problem && <ProblemNotice problem={problem} stale={runs.length > 0} />}
      {ids.length < MAX_COMPARED && <JobPicker without={ids} onPick={(id) => { change([...ids, id], axis); }} />}
      {ids.length === 0 && <Empty title="Nothing to compare yet"><p>Search for jobs above, or select some in the list of jobs.</p></Empty>}
      {ids.length > 0 && (
        <div className="stack">
          <RunTable runs={runs} onRemove={(id) => { change(ids.filter((known) => known !== id), axis); }} />
          <Curves runs={runs} axis={axis} />
          {runs.length > 1 && <SpecDiff names={names(runs.map(({ job }) => job))} differences={differences(runs.map(({ job }) => job.spec))} />}
        </div>
      )}
    </main>
  );
}

function useComparison() {
  const [params, setParams] = useSearchParams();
  const ids = [...new Set(params.getAll("job"))].slice(0, MAX_COMPARED);
  const axis = AXES.find((known) => known === params.get("by")) ?? "step";
  const change = (jobs: readonly string[], by: Axis) => {
    setParams(new URLSearchParams([...jobs.map((job) => ["job", job]), ...(by === "step" ? [] : [["by", by]])]), { replace: true });
  };
  return { ids, axis, change };
}

function By({ axis, onAxis }: { axis: Axis; onAxis: (axis: Axis) => void }) {
  return (
    <fieldset className="by">
      <legend className="unseen">Along</legend>
      {AXES.map((each) => (
        <label key={each}>
          <input type="radio" name="by" checked={each === axis} onChange={() => { onAxis(each); }} /> by {each}
        </label>
      ))}
    </fieldset>
  );
}

/** Names, with the end of the id where two jobs have the same. */
function names(jobs: readonly Job[]): string[] {
  const shared = (name: string) => jobs.filter((job) => job.name === name).length > 1;
  return jobs.map(({ name, id }) => (shared(name) ? `${name} …${id.slice(-4)}` : name));
}

interface Coloured extends Run {
  colour: string;
}

const trainLoss = (point: RunPoint) => point.loss;
const speed = (point: RunPoint) => point.tokensPerSecond;

function Curves({ runs, axis }: { runs: readonly Coloured[]; axis: Axis }) {
  const labels = names(runs.map(({ job }) => job));
  // Data of a query keeps its identity until it changes: so do the lines that are made of it.
  const known = JSON.stringify([axis, runs.map(({ job, points, validations, colour }) => [job.id, colour, points.length, points.at(-1), validations.length])]);
  const lines = useMemo(() => {
    const of = (dots: boolean, pick: (run: Coloured) => readonly RunPoint[], value: (point: RunPoint) => number | null): Line[] =>
      runs.map((run, index) => ({ label: labels[index] ?? "", colour: run.colour, dots, points: line(pick(run), axis, value) })).filter(({ points }) => points.length > 0);
    return { train: of(false, (run) => run.points, trainLoss), validation: of(true, (run) => run.validations, trainLoss), speed: of(false, (run) => run.points, speed) };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `known` says when they changed
  }, [known]);
  const shared = { group: GROUP, along: ALONG[axis] };
  if (lines.train.length === 0) return <p className="card pad quiet">Curves appear after the first step.</p>;
  return (
    <div className="charts">
      <Chart title="Training loss (nats per token)" summary={ends(lines.train, loss)} lines={lines.train} format={loss} {...shared} />
      {lines.validation.length > 0 && (
        <Chart title="Validation loss (nats per token)" summary={ends(lines.validation, loss)} lines={lines.validation} format={loss} {...shared} />
      )}
      <Chart title="Tokens per second" summary={ends(lines.speed, integer)} lines={lines.speed} format={integer} {...shared} />
    </div>
  );
}

/** Where each line ends, in words. */
function ends(lines: readonly Line[], format: (value: number | null) => string): string {
  return `${lines.map(({ label, points }) => `${label} ends at ${format(points.at(-1)?.y ?? null)}`).join(", ")}.`;
}
