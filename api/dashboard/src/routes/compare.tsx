/** `/compare?job=…&job=…&by=tokens`: runs over each other, and where their specs differ. All of it is in the address. */

import { useQueries } from "@tanstack/react-query";
import { lazy } from "react";
import { useSearchParams } from "wouter";
import { getRun, type Run } from "../api/runs";
import { Empty } from "../components/empty";
import { LoadedPart } from "../components/loaded-part";
import { ProblemNotice } from "../components/problem-notice";
import { SpecDiff } from "../components/spec-diff";
import { AxisChoice } from "../features/compare/axis-choice";
import { JobPicker } from "../features/compare/job-picker";
import { RunTable } from "../features/compare/run-table";
import { useTitle } from "../hooks/use-title";
import { MAX_COMPARED } from "../model/addresses";
import { isFinal } from "../model/jobs";
import { AXES, differences, labelsOf, type Axis } from "../model/runs";

const RunCharts = lazy(async () => ({ default: (await import("../features/compare/run-charts")).RunCharts }));

const POLL_MS = 5000;
const COLOURS = ["blue", "orange", "green", "violet", "red", "grey"] as const;

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
        <AxisChoice axis={axis} onAxis={(by) => { change(ids, by); }} />
      </div>
      {problem && <ProblemNotice problem={problem} stale={runs.length > 0} />}
      {ids.length < MAX_COMPARED && <JobPicker without={ids} onPick={(id) => { change([...ids, id], axis); }} />}
      {ids.length === 0 && <Empty title="Nothing to compare yet"><p>Search for jobs above, or select some in the list of jobs.</p></Empty>}
      {ids.length > 0 && (
        <div className="stack">
          <RunTable runs={runs} onRemove={(id) => { change(ids.filter((known) => known !== id), axis); }} />
          <LoadedPart><RunCharts runs={runs} axis={axis} /></LoadedPart>
          {runs.length > 1 && <SpecDiff names={labelsOf(runs.map(({ job }) => job))} differences={differences(runs.map(({ job }) => job.spec))} />}
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
