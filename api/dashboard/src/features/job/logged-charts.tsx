/** Charts of what a program logs, by group. A job may have a thousand names: only the charts in view are read and drawn. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Range } from "../../api/curves";
import { getLoggedCurves, type LoggedCurve, type LoggedMetric } from "../../api/logged-metrics";
import { untilRead } from "../../api/retrying";
import { ChartPanel } from "../../components/chart-panel";
import { curveLines } from "../../components/curve-lines";
import { MetricGroup } from "../../components/metric-group";
import { ProblemNotice } from "../../components/problem-notice";
import { useDebounced } from "../../hooks/use-debounced";
import { useInView } from "../../hooks/use-in-view";
import type { ChartView } from "../../model/chart-view";
import { number } from "../../model/format";
import type { MetricGroup as Group } from "../../model/metric-groups";
import { GROUP } from "./job-charts";

const POLL_MS = 3000;

export interface LoggedChartsProps {
  id: string;
  /** What its files are named after. */
  of: string;
  groups: readonly Group<LoggedMetric>[];
  ended: boolean;
  view: ChartView;
  onZoom: (zoom: Range | null) => void;
}

export function LoggedCharts({ id, of, groups, ended, view, onZoom }: LoggedChartsProps) {
  const { inView, watch } = useInView();
  const names = useMemo(() => groups.flatMap(({ metrics }) => metrics.flatMap(({ name }) => (inView.has(name) ? [name] : []))), [groups, inView]);
  const settled = useDebounced(JSON.stringify(names));
  const { data: curves, error } = useQuery({
    queryKey: ["logged-curves", id, settled, view.zoom, ended],
    queryFn: ({ signal }) => getLoggedCurves(id, JSON.parse(settled) as string[], view.zoom, signal),
    enabled: settled !== "[]",
    placeholderData: keepPreviousData,
    refetchInterval: ended ? untilRead : POLL_MS,
    gcTime: 0,
  });
  return (
    <div className="stack">
      {error && !curves && <ProblemNotice problem={error} />}
      {groups.map(({ name, metrics }) => (
        <MetricGroup key={name} name={name === "" ? "Without a prefix" : name} count={metrics.length}>
          <div className="charts metric-panels">
            {metrics.map((metric) => (
              <div key={metric.name} ref={watch} data-panel={metric.name} className="metric-panel">
                <LoggedChart of={of} metric={metric} curve={inView.has(metric.name) ? curves?.get(metric.name) : undefined} view={view} onZoom={onZoom} />
              </div>
            ))}
          </div>
        </MetricGroup>
      ))}
    </div>
  );
}

interface LoggedChartProps {
  of: string;
  metric: LoggedMetric;
  /** Of a chart that is in view, once it is read. */
  curve: LoggedCurve | undefined;
  view: ChartView;
  onZoom: (zoom: Range | null) => void;
}

function LoggedChart({ of, metric: { name, last, lastStep }, curve, view: { smooth, log, zoom }, onZoom }: LoggedChartProps) {
  const points = curve?.points;
  const band = curve?.band ?? false;
  const lines = useMemo(() => curveLines(points ?? [], { label: name, colour: "blue", band, weight: smooth }), [points, name, band, smooth]);
  const series = useMemo(() => [{ name, points: points ?? [] }], [name, points]);
  if (points === undefined) return <p className="card metric-panel-empty">{name}</p>;
  return <ChartPanel of={of} series={series} title={name} summary={`${number(last)} at step ${lastStep}.`} lines={lines} format={number} group={GROUP} log={log} zoom={zoom} onZoom={onZoom} />;
}
