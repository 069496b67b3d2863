/** What a job's program logs, as charts by name. A job may have hundreds of names: the first are shown, and a search finds others. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import type { Range } from "../../api/curves";
import { getLoggedCurves, getLoggedMetrics, type LoggedCurve, type LoggedMetric, MOST_CURVES } from "../../api/logged-metrics";
import { Chart, type Line } from "../../components/chart";
import { ProblemNotice } from "../../components/problem-notice";
import { integer, number } from "../../model/format";
import "./job.css";

const GROUP = "logged";
const POLL_MS = 3000;

export function LoggedMetrics({ id, ended }: { id: string; ended: boolean }) {
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  const [zoom, setZoom] = useState<Range | null>(null);
  const refetchInterval = ended ? false : POLL_MS;
  const { data: found, error } = useQuery({
    queryKey: ["logged-metrics", id, text, ended],
    queryFn: ({ signal }) => getLoggedMetrics(id, text, signal),
    placeholderData: keepPreviousData,
    refetchInterval,
  });
  const shown = useMemo(() => (found?.items ?? []).slice(0, all ? MOST_CURVES : FIRST), [found, all]);
  const names = useMemo(() => shown.map(({ name }) => name), [shown]);
  const { data: curves } = useQuery({
    queryKey: ["logged-curves", id, names, zoom, ended],
    queryFn: ({ signal }) => getLoggedCurves(id, names, zoom, signal),
    enabled: names.length > 0,
    placeholderData: keepPreviousData,
    refetchInterval,
  });
  const onZoom = useCallback((range: Range | null) => { setZoom(range && [Math.max(0, range[0]), Math.max(range[0] + 1, range[1])]); }, []);
  if (!found) return error && <ProblemNotice problem={error} />;
  if (found.items.length === 0 && text === "") {
    return <p className="card pad quiet">{ended ? "This job logged no metrics." : "Curves appear when the program logs numbers:"} {!ended && <code>shardyard.log({"{"}&quot;loss&quot;: 0.5{"}"}, step=1)</code>}</p>;
  }
  const count = `${integer(found.items.length)}${found.more ? " or more" : ""} metric${found.items.length === 1 ? "" : "s"}`;
  return (
    <section className="stack" aria-label="Logged metrics">
      <form className="chart-controls" role="search" aria-label="Find metrics" onSubmit={(event) => { event.preventDefault(); }}>
        <label>
          <span className="unseen">Name</span>
          <input type="search" placeholder="Find a metric" maxLength={200} value={text} onChange={(event) => { setText(event.target.value); }} />
        </label>
        <span className="quiet" role="status">{found.items.length > shown.length ? `The first ${shown.length} of ${count}` : count}</span>
        {!all && found.items.length > FIRST && <button type="button" onClick={() => { setAll(true); }}>Show {Math.min(MOST_CURVES, found.items.length)}</button>}
        {zoom && <button type="button" onClick={() => { setZoom(null); }}>All steps</button>}
      </form>
      <div className="charts">
        {shown.map((metric) => <MetricChart key={metric.name} metric={metric} curve={curves?.get(metric.name)} zoom={zoom} onZoom={onZoom} />)}
      </div>
    </section>
  );
}

/** Charts before the reader asks for more. */
const FIRST = 8;

interface MetricChartProps {
  metric: LoggedMetric;
  curve: LoggedCurve | undefined;
  zoom: Range | null;
  onZoom: (range: Range | null) => void;
}

function MetricChart({ metric: { name, last, lastStep }, curve, zoom, onZoom }: MetricChartProps) {
  const lines = useMemo((): Line[] => [{ label: name, colour: "blue", band: curve?.band ?? false, points: curve?.points ?? [] }], [name, curve]);
  return <Chart title={name} summary={`${number(last)} at step ${lastStep}.`} lines={lines} format={number} group={GROUP} zoom={zoom} onZoom={onZoom} />;
}
