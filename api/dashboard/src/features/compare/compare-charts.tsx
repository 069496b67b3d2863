/** Charts of all metrics of the compared runs, by group: what trainings report first, then what the runs log. Only those in view are read. */

import { type ReactNode, useMemo } from "react";
import type { Curve, Range } from "../../api/curves";
import type { LoggedCurve, LoggedName } from "../../api/logged-metrics";
import { MetricGroup } from "../../components/metric-group";
import { ProblemNotice } from "../../components/problem-notice";
import { useInView } from "../../hooks/use-in-view";
import type { CompareView } from "../../model/compare-view";
import { along } from "../../model/curve";
import { loss, number } from "../../model/format";
import { groupsOf, isFound } from "../../model/metric-groups";
import { hull, type Places, rangesAlong } from "../../model/step-places";
import { chartsFound, TRAINING_CHARTS, type TrainingChart } from "../../model/training-charts";
import { ComparePanel, type PanelCurve } from "./compare-panel";
import { type ComparedRun, useLoggedCurves, usePlaces, useRanges } from "./use-comparison";

const VALIDATION = "Validation loss (nats per token)";

export interface CompareChartsProps {
  runs: readonly ComparedRun[];
  /** The baseline's place among them. */
  base: number;
  names: readonly LoggedName[];
  view: CompareView;
  onZoom: (zoom: Range | null) => void;
}

/** The charts of trainings that are found: whether one is there does not depend on the range. */
export function trainingFound(runs: readonly ComparedRun[], find: string): { charts: readonly TrainingChart[]; validation: boolean } {
  const found = new Set(runs.flatMap(({ curve }) => chartsFound(curve, find)));
  return { charts: TRAINING_CHARTS.filter((chart) => found.has(chart)), validation: isFound(VALIDATION, find) && runs.some(({ evals }) => evals.length > 0) };
}

export function CompareCharts({ runs, base, names, view, onZoom }: CompareChartsProps) {
  const places = usePlaces(runs, view.by);
  const { charts, validation } = trainingFound(runs, view.find);
  const groups = useMemo(() => groupsOf(names, view.find), [names, view.find]);
  const { inView, watch } = useInView();
  const wanted = useMemo(() => groups.flatMap(({ metrics }) => metrics.flatMap(({ name }) => (inView.has(name) ? [name] : []))), [groups, inView]);
  const { axis, ranges, read } = useMemo(() => rangesOf(view, places, base), [view, places, base]);
  const { found, problem } = useLoggedCurves(runs, wanted, read);
  const fine = useRanges(runs, read);
  const shared = { runs, base, view, places, axis, ranges, onZoom };
  return (
    <>
      {problem && <ProblemNotice problem={problem} stale={found.some((one) => one !== undefined)} />}
      {charts.length + Number(validation) > 0 && (
        <MetricGroup name="Training" count={charts.length + Number(validation)}>
          <div className="charts">
            {charts.map((chart, at) => (
              <TrainingPanel key={chart.name} chart={chart} fine={fine} {...shared} after={at === 0 && validation ? <ValidationPanel {...shared} /> : null} />
            ))}
            {validation && charts.length === 0 && <ValidationPanel {...shared} />}
          </div>
        </MetricGroup>
      )}
      {groups.map(({ name, metrics }) => (
        <MetricGroup key={name} name={name === "" ? "Without a prefix" : name} count={metrics.length}>
          <div className="charts metric-panels">
            {metrics.map((metric) => (
              <div key={metric.name} ref={watch} data-panel={metric.name} className="metric-panel">
                <LoggedPanel name={metric.name} found={inView.has(metric.name) ? found : null} {...shared} />
              </div>
            ))}
          </div>
        </MetricGroup>
      ))}
    </>
  );
}

interface Shared extends Omit<CompareChartsProps, "names"> {
  places: readonly (Places | null)[];
  axis: Places | null;
  ranges: readonly (Range | null)[];
}

/**
 * The places of the run in whose steps the zoom is, of each run the steps that are shown, and those that are read: a difference at
 * equal steps needs the baseline at the steps of all runs.
 */
function rangesOf({ zoom, by, difference }: CompareView, places: readonly (Places | null)[], base: number) {
  const axis = places[base] ?? places.find((one) => one !== null) ?? null;
  const ranges = by === "step" ? places.map(() => zoom) : rangesAlong(zoom, places, axis);
  return { axis, ranges, read: difference && ranges[base] ? ranges.with(base, hull(ranges)) : ranges };
}

const styleOf = (run: ComparedRun, places: Places | null | undefined, range: Range | null | undefined): Omit<PanelCurve, "points"> =>
  ({ label: run.label, colour: run.colour, places: places ?? null, range: range ?? null });

function TrainingPanel({ chart, fine, after, runs, places, ranges, ...shared }: Shared & { chart: TrainingChart; fine: readonly Curve[]; after: ReactNode }) {
  const { name, title, format, log, exact } = chart;
  const curves = useMemo(() => runs.map((run, at): PanelCurve => ({ ...styleOf(run, places[at], ranges[at]), points: along(fine[at] ?? run.curve, name) })), [runs, fine, places, ranges, name]);
  return (
    <>
      <ComparePanel title={title} curves={curves} format={format} linear={log !== true} exact={exact === true} {...shared} />
      {after}
    </>
  );
}

function ValidationPanel({ runs, places, ranges, ...shared }: Shared) {
  const curves = useMemo(() => runs.map((run, at): PanelCurve => ({
    ...styleOf(run, places[at], ranges[at]),
    points: run.evals.map(({ step, loss: y }) => ({ x: step, y, low: y, high: y })),
  })), [runs, places, ranges]);
  return <ComparePanel title={VALIDATION} curves={curves} format={loss} exact dots {...shared} />;
}

/** `found`: null while the panel is not in view. */
function LoggedPanel({ name, found, runs, places, ranges, ...shared }: Shared & { name: string; found: readonly (ReadonlyMap<string, LoggedCurve> | undefined)[] | null }) {
  const curves = useMemo(() => runs.map((run, at): PanelCurve => ({ ...styleOf(run, places[at], ranges[at]), points: found?.[at]?.get(name)?.points ?? [] })), [runs, places, ranges, found, name]);
  const read = found?.some((one) => one?.has(name)) === true;
  if (!read) return <p className="card metric-panel-empty">{name}</p>;
  return <ComparePanel title={name} curves={curves} format={number} {...shared} />;
}
