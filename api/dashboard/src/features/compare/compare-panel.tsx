/** One metric of several runs as lines over each other, or as their differences to the baseline. */

import { useMemo } from "react";
import type { Drawn, Range } from "../../api/curves";
import type { Line } from "../../components/chart";
import { alongOf, placed } from "../../components/chart-axis";
import { ChartPanel } from "../../components/chart-panel";
import { curveLines } from "../../components/curve-lines";
import type { CompareView } from "../../model/compare-view";
import { within } from "../../model/csv";
import { differenceTo } from "../../model/difference";
import type { Places } from "../../model/step-places";

export interface PanelCurve {
  label: string;
  colour: string;
  points: readonly Drawn[];
  /** Where its steps are along the axis; null: it runs along steps, or they have no place. */
  places: Places | null;
  /** Its steps that are shown; null: all. */
  range: Range | null;
}

export interface ComparePanelProps {
  title: string;
  /** Of each run, in their order. */
  curves: readonly PanelCurve[];
  /** The baseline's place among them. */
  base: number;
  /** The places of the run in whose steps the zoom is. */
  axis: Places | null;
  view: CompareView;
  format: (value: number | null) => string;
  /** Has no sense on a logarithmic axis. */
  linear?: boolean;
  /** There is nothing to smooth. */
  exact?: boolean;
  dots?: boolean;
  onZoom: (zoom: Range | null) => void;
}

const GROUP = "compare";
const FILES = "compare";

export function ComparePanel({ title, curves, base, axis, view, format, linear = false, exact = false, dots = false, onZoom }: ComparePanelProps) {
  const { by, zoom, difference, log } = view;
  const baseline = curves[base];
  const shown = useMemo(() => shownOf(curves, difference ? baseline : undefined, by !== "step"), [curves, difference, baseline, by]);
  const weight = exact ? 0 : view.smooth;
  const lines = useMemo(() => shown.flatMap((curve) => linesOf(curve, weight, dots)), [shown, weight, dots]);
  const series = useMemo(() => shown.map(({ label, points, range }) => ({ name: label, points: range ? within(points, range) : points })), [shown]);
  const drawn = useMemo(() => alongOf(GROUP, by, zoom, axis, onZoom), [by, zoom, axis, onZoom]);
  if (lines.length === 0) return <p className="card metric-panel-empty">{title}<span className="quiet compare-why">{whyEmpty(difference && baseline?.points.length === 0 ? baseline.label : null, by !== "step" && curves.some(({ points }) => points.length > 0))}</span></p>;
  const about = difference ? `Difference to ${baseline?.label ?? ""}. ` : "";
  return <ChartPanel of={FILES} series={series} title={difference ? `${title}, difference` : title} summary={about + ends(shown, format)} lines={lines} format={format} log={log && !linear && !difference} steps={null} {...drawn} />;
}

/** Those that have a point on the axis, which runs along something else than steps if `away`; with a baseline what each is above it. */
const shownOf = (curves: readonly PanelCurve[], baseline: PanelCurve | undefined, away: boolean): readonly PanelCurve[] =>
  (baseline ? curves.map((curve) => ({ ...curve, points: differenceTo(curve.points, baseline.points) })) : curves).filter(({ points, places }) => points.length > 0 && !(away && places === null));

/** A line of one point alone would not be seen. */
function linesOf({ label, colour, points, places }: PanelCurve, weight: number, dots: boolean): Line[] {
  const lines = curveLines(points, { label, colour, band: false, weight }).map((line) => ({ ...line, dots: dots || points.length === 1 }));
  return places === null ? lines : placed(lines, places);
}

function whyEmpty(baseline: string | null, away: boolean): string {
  if (baseline !== null) return `The baseline ${baseline} has no such metric.`;
  return away ? "Only steps are known of it: choose Along steps." : "No values in these steps.";
}

/** Where each line ends, in words. */
const ends = (curves: readonly PanelCurve[], format: ComparePanelProps["format"]) =>
  `${curves.map(({ label, points }) => `${label} ends at ${format(points.findLast(({ y }) => y !== null)?.y ?? null)}`).join(", ")}.`;
