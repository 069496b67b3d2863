/** Runs side by side: their results in a table, their metrics in charts, and where their specs differ. Its settings are in the address. */

import { useCallback } from "react";
import type { Range } from "../../api/curves";
import type { LoggedName } from "../../api/logged-metrics";
import { ChartControls } from "../../components/chart-controls";
import { ProblemNotice } from "../../components/problem-notice";
import { SpecDiff } from "../../components/spec-diff";
import { useAddressState } from "../../hooks/use-address-state";
import { rangeOf } from "../../model/chart-view";
import { trains } from "../../model/checkpoints";
import * as compareView from "../../model/compare-view";
import { lastStep } from "../../model/curve";
import { isFinal } from "../../model/jobs";
import { isFound } from "../../model/metric-groups";
import { loggedPath, trainingPaths, usualPaths } from "../../model/results";
import { type Axis, differences } from "../../model/runs";
import { CompareCharts, trainingFound } from "./compare-charts";
import { ResultControls } from "./result-controls";
import { RunTable } from "./run-table";
import { type ComparedRun, type MissingRun, useComparedRuns, useLoggedNames, usePlaces, useResults } from "./use-comparison";

export function Comparison({ ids, onRemove }: { ids: readonly string[]; onRemove: (id: string) => void }) {
  const { runs, missing, problem } = useComparedRuns(ids);
  const [view, change] = useAddressState(compareView);
  const ended = runs.every(({ job }) => isFinal(job.state));
  const { found: all } = useLoggedNames(ids, "", ended);
  const { found, problem: unnamed } = useLoggedNames(ids, view.find, ended);
  const base = Math.max(0, runs.findIndex(({ job }) => job.id === view.base));
  const trained = trainingPaths(runs);
  const logged = all?.names.map(({ name }) => name) ?? [];
  const columns = view.columns ?? usualPaths(trained, logged);
  const results = useResults(runs, columns);
  const gone = missing.map((one) => <Missing key={one.id} run={one} onRemove={onRemove} />);
  if (runs.length === 0) return <>{gone}{problem ? <ProblemNotice problem={problem} /> : gone.length < ids.length && <p className="quiet">Loading the runs…</p>}</>;
  const baseline = runs.length > 1 ? runs[base]?.label ?? null : null;
  return (
    <div className="stack">
      {gone}
      {problem && <ProblemNotice problem={problem} stale />}
      {unnamed && <ProblemNotice problem={unnamed} stale={found !== undefined} />}
      <ResultControls view={view} onChange={change} paths={[...trained, ...logged.map(loggedPath)]} columns={columns} baseline={baseline} />
      <RunTable runs={runs} results={results} columns={columns} kind={view.result} base={base} onBase={(id) => { change({ base: id }); }} onRemove={onRemove} />
      <Metrics runs={runs} base={base} any={trained.length + logged.length > 0} names={found?.names ?? (unnamed ? NO_NAMES : undefined)} more={found?.more === true} ended={ended} view={baseline === null ? { ...view, difference: false } : view} onChange={change} />
      {runs.length > 1 && <SpecDiff names={runs.map(({ label }) => label)} differences={differences(runs.map(({ job }) => job.spec))} />}
    </div>
  );
}

/** In the place of a run that is deleted, or was never there. */
function Missing({ run: { id, problem }, onRemove }: { run: MissingRun; onRemove: (id: string) => void }) {
  return (
    <div>
      <ProblemNotice problem={problem} />
      <button className="button after" onClick={() => { onRemove(id); }}>Remove {id}</button>
    </div>
  );
}

const NO_NAMES: readonly LoggedName[] = [];

interface MetricsProps {
  runs: readonly ComparedRun[];
  base: number;
  /** Whether the runs have any metric, found or not. */
  any: boolean;
  /** Logged names that are found; undefined: not read yet. */
  names: readonly LoggedName[] | undefined;
  more: boolean;
  ended: boolean;
  view: compareView.CompareView;
  onChange: (changes: Partial<compareView.CompareView>) => void;
}

function Metrics({ runs, base, any, names, more, ended, view, onChange }: MetricsProps) {
  const onZoom = useCallback((zoom: Range | null) => { onChange({ zoom: zoom && rangeOf(...zoom) }); }, [onChange]);
  if (names === undefined) return <p className="quiet">Loading the metrics…</p>;
  if (!any) return <NoMetrics ended={ended} />;
  const { charts, validation } = trainingFound(runs, view.find);
  const count = names.filter(({ name }) => isFound(name, view.find)).length + charts.length + Number(validation);
  const newest = Math.max(...runs.map(({ curve }) => lastStep(curve)), ...names.map((one) => one.lastStep));
  return (
    <section className="stack" aria-label="Metrics">
      <ChartControls view={view} onChange={onChange} lastStep={newest} count={count} axes={runs.some(({ job }) => trains(job))} />
      <WithoutPlaces runs={runs} by={view.by} />
      {count === 0 && <p className="card pad quiet">No metric’s name contains this text.</p>}
      <CompareCharts runs={runs} base={base} names={names} view={view} onZoom={onZoom} />
      {more && <p className="quiet">The runs have more metrics: search for them by a part of their name.</p>}
    </section>
  );
}

function NoMetrics({ ended }: { ended: boolean }) {
  if (ended) return <p className="card pad quiet">None of these jobs has a metric.</p>;
  return <p className="card pad quiet">Curves appear after the first step of a training, and when a program logs numbers: <code>shardyard.log({"{"}&quot;loss&quot;: 0.5{"}"}, step=1)</code></p>;
}

/** Names the runs that have no lines, since only their steps are known. */
function WithoutPlaces({ runs, by }: { runs: readonly ComparedRun[]; by: Axis }) {
  const places = usePlaces(runs, by);
  const missing = by === "step" ? [] : runs.filter(({ job }, at) => !trains(job) && places[at] === null);
  if (missing.length === 0) return null;
  return <p className="quiet">Not drawn along {by}: {missing.map(({ label }) => label).join(", ")}. Programs log their numbers by step only.</p>;
}
