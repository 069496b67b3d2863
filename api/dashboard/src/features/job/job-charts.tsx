/** A training's own curves as charts that share their cursor and their range of steps. A zoom fetches the range in full; what no step has is not drawn. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Curve, type Eval, getCurves, type Range } from "../../api/curves";
import type { Job } from "../../api/jobs";
import { untilRead } from "../../api/retrying";
import type { Line } from "../../components/chart";
import { alongOf, placed } from "../../components/chart-axis";
import { ChartPanel } from "../../components/chart-panel";
import { curveLines } from "../../components/curve-lines";
import { ALL, type ChartView } from "../../model/chart-view";
import type { Series } from "../../model/csv";
import { along, lastStep } from "../../model/curve";
import { isFinal } from "../../model/jobs";
import type { Live } from "../../model/live";
import type { Places } from "../../model/step-places";
import { chartsFound, type TrainingChart } from "../../model/training-charts";
import type { LiveJob } from "./use-live";
import { useStepPlaces } from "./use-step-places";

/** All charts of a job share their cursor. */
export const GROUP = "job";
const POLL_MS = 3000;

export interface JobChartsProps {
  id: string;
  /** What its files are named after. */
  of: string;
  charts: readonly TrainingChart[];
  live: Live;
  ended: boolean;
  view: ChartView;
  onZoom: (zoom: Range | null) => void;
}

export function JobCharts({ id, of, charts, live, ended, view, onZoom }: JobChartsProps) {
  const newest = lastStep(live.curve);
  const zoom = useMemo(() => view.zoom && bounded(view.zoom, newest), [view.zoom, newest]);
  const curve = useRange(id, live, zoom, ended);
  const places = useStepPlaces(id, view.by, ended);
  return (
    <div className="charts">
      {charts.map((spec) => <SeriesChart key={spec.name} of={of} spec={spec} curve={curve} evals={evalsOf(spec, live)} view={{ ...view, zoom }} places={places} onZoom={onZoom} />)}
    </div>
  );
}

/** The first two: how the job learns, and how fast. */
export function MainCharts({ job, live }: { job: Job; live: LiveJob }) {
  const charts = chartsFound(live.curve, "").slice(0, 2);
  if (charts.length === 0) return <NoCurves job={job} live={live} />;
  return (
    <div className="charts">
      {charts.map((spec) => <SeriesChart key={spec.name} of={job.name} spec={spec} curve={live.curve} evals={evalsOf(spec, live)} view={ALL} />)}
    </div>
  );
}

/** Why a training has no curves. */
export function NoCurves({ job, live }: { job: Job; live: LiveJob }) {
  return <p className="card pad quiet">{live.connection === "connecting" ? "Loading the curves…" : whyNone(job)}</p>;
}

/** Of an ended job retention may have removed them. */
function whyNone({ state, progress }: Job): string {
  if (!isFinal(state)) return "Curves appear after the first step.";
  return progress === null ? "This job ended before its first step." : "No curves of this job are stored.";
}

const evalsOf = (spec: TrainingChart, live: Live) => (spec.name === "loss" ? live.evals : NO_EVALS);

const NO_EVALS: readonly Eval[] = [];

const bounded = ([from, to]: Range, newest: number): Range => {
  const low = Math.max(1, Math.min(from, newest - 1));
  return [low, Math.max(low + 1, Math.min(to, newest))];
};

/** The curve of the range, as fine as possible; until it is fetched, the known curve. */
function useRange(id: string, { curve, version }: Live, zoom: Range | null, ended: boolean): Curve {
  const newest = lastStep(curve);
  const grows = zoom !== null && zoom[1] > newest - curve.width && !ended;
  // A range up to the newest step has no end of its own, which would change with every step.
  const range = zoom !== null && zoom[1] >= newest ? ([zoom[0], null] as const) : zoom;
  // Of a range that lies beyond the newest step the last two are shown: it would change with every step of a running job.
  const finer = zoom !== null && curve.width > 1 && (ended || zoom[0] < newest - 1);
  const { data } = useQuery({
    queryKey: ["curves", id, version, range, ended],
    queryFn: ({ signal }) => getCurves(id, range, signal),
    enabled: finer,
    staleTime: Infinity,
    gcTime: 0, // `version` is that of this page: on the next one, steps may have been replaced
    refetchInterval: grows ? POLL_MS : untilRead,
  });
  return finer && data ? data.curve : curve;
}

interface SeriesChartProps {
  of: string;
  spec: TrainingChart;
  curve: Curve;
  evals: readonly Eval[];
  view: ChartView;
  /** Null: the chart runs along steps. */
  places?: Places | null;
  onZoom?: (zoom: Range | null) => void;
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
  const drawn = useMemo(() => alongOf(GROUP, view.by, view.zoom, places, onZoom), [view.by, view.zoom, places, onZoom]);
  return <ChartPanel of={of} series={series} title={title} summary={summary} lines={lines} format={format} log={log} steps={view.zoom} {...drawn} />;
}
