/** A training's own curves as charts that share their cursor and their range of steps. A zoom fetches the range in full; what no step has is not drawn. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Curve, type Eval, getCurves, type Range, type SeriesName } from "../../api/curves";
import type { Along, Line } from "../../components/chart";
import { ChartPanel } from "../../components/chart-panel";
import { ALL, type ChartView } from "../../model/chart-view";
import type { Series } from "../../model/csv";
import { along, lastStep } from "../../model/curve";
import { duration, integer, loss, number, percent, short } from "../../model/format";
import type { Live } from "../../model/live";
import { isFound } from "../../model/metric-groups";
import type { Axis } from "../../model/runs";
import type { Places } from "../../model/step-places";
import { curveLines } from "./curve-lines";
import type { LiveJob } from "./use-live";
import { useStepPlaces } from "./use-step-places";

/** All charts of a job share their cursor. */
export const GROUP = "job";
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

/** Those whose title has this text in it. Whether a chart is there does not depend on the range. */
export const chartsFound = (whole: Curve, text: string): readonly ChartSpec[] =>
  CHARTS.filter(({ name, title }) => isFound(title, text) && whole.buckets.some(({ values }) => values[name] !== undefined));

export interface JobChartsProps {
  id: string;
  /** What its files are named after. */
  of: string;
  charts: readonly ChartSpec[];
  live: Live;
  ended: boolean;
  view: ChartView;
  onZoom: (zoom: Range | null) => void;
}

export function JobCharts({ id, of, charts, live, ended, view, onZoom }: JobChartsProps) {
  const newest = lastStep(live.curve);
  const zoom = useMemo(() => view.zoom && bounded(view.zoom, newest), [view.zoom, newest]);
  const curve = useRange(id, live.curve, zoom, ended);
  const places = useStepPlaces(id, view.by, ended);
  return (
    <div className="charts">
      {charts.map((spec) => <SeriesChart key={spec.name} of={of} spec={spec} curve={curve} evals={evalsOf(spec, live)} view={{ ...view, zoom }} places={places} onZoom={onZoom} />)}
    </div>
  );
}

/** The first two: how the job learns, and how fast. */
export function MainCharts({ of, live, ended }: { of: string; live: LiveJob; ended: boolean }) {
  const charts = chartsFound(live.curve, "").slice(0, 2);
  if (charts.length === 0) return <NoCurves live={live} ended={ended} />;
  return (
    <div className="charts">
      {charts.map((spec) => <SeriesChart key={spec.name} of={of} spec={spec} curve={live.curve} evals={evalsOf(spec, live)} view={ALL} />)}
    </div>
  );
}

/** Why a training has no curves. */
export function NoCurves({ live, ended }: { live: LiveJob; ended: boolean }) {
  const why = live.connection === "connecting" ? "Loading the curves…" : ended ? "This job ended before its first step." : "Curves appear after the first step.";
  return <p className="card pad quiet">{why}</p>;
}

const evalsOf = (spec: ChartSpec, live: Live) => (spec.name === "loss" ? live.evals : NO_EVALS);

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
  of: string;
  spec: ChartSpec;
  curve: Curve;
  evals: readonly Eval[];
  view: ChartView;
  /** Null: the chart runs along steps. */
  places?: Places | null;
  onZoom?: (zoom: Range | null) => void;
}

const ALONG: Readonly<Record<Exclude<Axis, "step">, Along>> = { tokens: { name: "Tokens", format: short }, time: { name: "Time", format: duration } };

/** Points at other places; what is drawn stays the same. */
const placed = (lines: readonly Line[], { ofStep }: Places): Line[] =>
  lines.map((line) => ({
    ...line,
    points: line.points.map(({ from, to, ...point }) => ({ ...point, x: ofStep(point.x), ...(from !== undefined && to !== undefined && { from: ofStep(from), to: ofStep(to) }) })),
  }));

/** How a chart runs along something else than steps. Charts along the same share their cursor; a range is of steps everywhere else. */
function alongOf(by: Axis, zoom: Range | null, places: Places | null, onZoom: SeriesChartProps["onZoom"]) {
  if (places === null || by === "step") return { group: GROUP, zoom, ...(onZoom && { onZoom }) };
  const change = (range: Range | null) => { onZoom?.(range && [places.toStep(range[0]), places.toStep(range[1])]); };
  return { group: `${GROUP}-${by}`, along: ALONG[by], zoom: zoom && ([places.ofStep(zoom[0]), places.ofStep(zoom[1])] as const), ...(onZoom && { onZoom: change }) };
}

function SeriesChart({ of, spec, curve, evals, view, places = null, onZoom }: SeriesChartProps) {
  const { name, title, label, colour, format } = spec;
  const weight = spec.exact ? 0 : view.smooth;
  const points = useMemo(() => along(curve, name), [curve, name]);
  const lines = useMemo((): Line[] => {
    const validations: Line[] = evals.length > 0 ? [{ label: "Validation", colour: "orange", dots: true, points: evals.map((e) => ({ x: e.step, y: e.loss })) }] : [];
    const all = [...curveLines(points, { label, colour, band: curve.width > 1, weight }), ...validations];
    return places === null ? all : placed(all, places);
  }, [points, curve.width, label, colour, weight, evals, places]);
  const series = useMemo((): Series[] => {
    const validations = evals.map(({ step, loss: value }) => ({ x: step, y: value, low: value, high: value }));
    return [{ name: label, points }, ...(evals.length > 0 ? [{ name: "Validation", points: validations }] : [])];
  }, [points, label, evals]);
  const known = points.filter(({ y }) => y !== null);
  const [first, last] = [known[0], known.at(-1)];
  const summary = first && last ? `${label} ${format(first.y)} at step ${Math.round(first.x)}, ${format(last.y)} at step ${Math.round(last.x)}.` : "";
  const log = view.log && spec.log === true;
  const drawn = useMemo(() => alongOf(view.by, view.zoom, places, onZoom), [view.by, view.zoom, places, onZoom]);
  return <ChartPanel of={of} series={series} title={title} summary={summary} lines={lines} format={format} log={log} steps={view.zoom} {...drawn} />;
}
