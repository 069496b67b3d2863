/** A job's curves as charts that share their cursor and their range of steps. A zoom fetches the range in full; what no step has is not drawn. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { type Curve, type Eval, getCurves, type Range, type SeriesName } from "../../api/curves";
import { Chart, type Line } from "../../components/chart";
import type { ChartView } from "../../model/chart-view";
import { along, lastStep, smoothed } from "../../model/curve";
import { integer, loss, number, percent } from "../../model/format";
import type { Live } from "../../model/live";
import { ChartControls } from "./chart-controls";
import { useChartView } from "./use-chart-view";

const GROUP = "job";
const POLL_MS = 3000;

interface ChartSpec {
  name: SeriesName;
  title: string;
  label: string;
  colour: string;
  format: (value: number | null) => string;
  /** Has sense on a logarithmic axis. */
  log?: boolean;
  /** Set by a schedule, not measured: there is nothing to smooth. */
  exact?: boolean;
}

const CHARTS: readonly ChartSpec[] = [
  { name: "loss", title: "Loss (nats per token)", label: "Train", colour: "blue", format: loss, log: true },
  { name: "tokens_per_s", title: "Tokens per second", label: "Tokens/s", colour: "green", format: integer },
  { name: "mfu", title: "Model FLOPs utilisation", label: "MFU", colour: "violet", format: percent },
  { name: "grad_norm", title: "Gradient norm", label: "Norm", colour: "violet", format: number, log: true },
  { name: "lr", title: "Learning rate", label: "Rate", colour: "grey", format: number, exact: true },
  { name: "loss_scale", title: "Loss scale", label: "Scale", colour: "red", format: number, log: true, exact: true },
];

export function JobCharts({ id, live, ended }: { id: string; live: Live; ended: boolean }) {
  const [view, change] = useChartView();
  const newest = lastStep(live.curve);
  const curve = useRange(id, live.curve, view.zoom, ended);
  const onZoom = useCallback((zoom: Range | null) => { change({ zoom: zoom && bounded(zoom, newest) }); }, [change, newest]);
  if (live.curve.buckets.length === 0) {
    return <p className="card pad quiet">{ended ? "This job ended before its first step." : "Curves appear after the first step."}</p>;
  }
  return (
    <section className="stack" aria-label="Curves">
      <ChartControls view={view} onChange={change} lastStep={newest} />
      <div className="charts">
        {CHARTS.map((spec) => <SeriesChart key={spec.name} spec={spec} curve={curve} whole={live.curve} evals={spec.name === "loss" ? live.evals : NO_EVALS} view={view} onZoom={onZoom} />)}
      </div>
    </section>
  );
}

const NO_EVALS: readonly Eval[] = [];

const bounded = ([from, to]: Range, newest: number): Range => {
  const low = Math.max(1, Math.min(from, newest - 1));
  return [low, Math.max(low + 1, Math.min(to, newest))];
};

/** The curve of the range, as fine as possible; until it is fetched, the known curve. */
function useRange(id: string, live: Curve, zoom: Range | null, ended: boolean): Curve {
  const coarse = live.width > 1;
  const grows = zoom !== null && zoom[1] > lastStep(live) - live.width && !ended;
  const { data } = useQuery({
    queryKey: ["curves", id, zoom],
    queryFn: ({ signal }) => getCurves(id, zoom, signal),
    enabled: zoom !== null && coarse,
    staleTime: Infinity,
    gcTime: 60_000,
    refetchInterval: grows ? POLL_MS : false,
  });
  return zoom !== null && coarse && data ? data.curve : live;
}

interface SeriesChartProps {
  spec: ChartSpec;
  curve: Curve;
  /** All that is known: whether a chart is there does not depend on the range. */
  whole: Curve;
  evals: readonly Eval[];
  view: ChartView;
  onZoom: (zoom: Range | null) => void;
}

function SeriesChart({ spec, curve, whole, evals, view, onZoom }: SeriesChartProps) {
  const { name, title, label, colour, format } = spec;
  const weight = spec.exact ? 0 : view.smooth;
  const lines = useMemo((): Line[] => {
    const points = along(curve, name);
    const curveLine: Line = { label: weight > 0 ? `${label} (smoothed)` : label, colour, band: curve.width > 1, points: smoothed(points, weight) };
    const raw: Line[] = weight > 0 && curve.width === 1 ? [{ label: "raw", colour, faint: true, points }] : [];
    const validations: Line[] = evals.length > 0 ? [{ label: "Validation", colour: "orange", dots: true, points: evals.map((e) => ({ x: e.step, y: e.loss })) }] : [];
    return [...raw, curveLine, ...validations];
  }, [curve, name, label, colour, weight, evals]);
  const known = useMemo(() => along(whole, name), [whole, name]);
  const first = known[0];
  const last = known.at(-1);
  if (first === undefined || last === undefined) return null;
  const summary = `${label} ${format(first.y)} at step ${Math.round(first.x)}, ${format(last.y)} at step ${Math.round(last.x)}.`;
  return <Chart title={title} summary={summary} lines={lines} format={format} group={GROUP} log={view.log && spec.log === true} zoom={view.zoom} onZoom={onZoom} />;
}
