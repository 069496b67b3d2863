/**
 * Lines over steps, or over what else they are compared by, drawn by uPlot on a canvas; its colours are the page's. A line may have a
 * band, from the lowest to the highest of what each of its points stands for.
 */

import { type ReactNode, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { integer } from "../model/format";
import { isolated } from "../model/isolated";
import { legendPlace, type LegendPoint, legendValue } from "../model/legend";
import { spread } from "../model/spread";
import "./chart.css";

export interface Line {
  label: string;
  /** A colour of the theme, without its dashes: `blue`. */
  colour: string;
  dots?: boolean;
  /** Dots that no line joins. */
  scattered?: boolean;
  /** Drawn faintly, and not in the legend. */
  faint?: boolean;
  /** Points have a `low` and a `high`. */
  band?: boolean;
  points: readonly LinePoint[];
}

interface LinePoint extends LegendPoint {
  low?: number | null;
  high?: number | null;
}

/** From the first to the last place along the lines. */
export type Zoom = readonly [from: number, to: number];

export interface ChartProps {
  title: string;
  /** The content of the chart in words, for screen readers. */
  summary: string;
  lines: readonly Line[];
  format: (value: number | null) => string;
  /** Charts of one group share their cursor. */
  group: string;
  /** What the lines run along. */
  along?: Along;
  /** A logarithmic scale, on which what is not above 0 is not shown. */
  log?: boolean;
  /** What is shown of the lines; null: all. */
  zoom?: Zoom | null;
  /** Called with a range drawn by the pointer, or with null after a double click. Left out: the chart cannot be zoomed. */
  onZoom?: ((zoom: Zoom | null) => void) | undefined;
  /** As high as its box, not as charts usually are. */
  tall?: boolean;
  /** Buttons beside the title. */
  children?: ReactNode;
}

export interface Along {
  name: string;
  format: (value: number | null) => string;
  /** Shorter, for the axis, whose ticks are at multiples of `increment`. */
  onAxis?: (value: number, increment: number) => string;
  /** What `increment` may be. */
  increments?: readonly number[];
  /** Pixels between two ticks at least, for their texts. */
  space?: number;
}

const STEPS: Along = { name: "Step", format: integer };

const HEIGHT = 220;
// eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- uPlot's enum exists for its types alone
const LOGARITHMIC = 3 as uPlot.Scale.Distr;

export function Chart({ title, summary, lines, format, group, along = STEPS, log = false, zoom = null, onZoom, tall = false, children }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useSyncExternalStore(onTheme, isDark);
  const data = useMemo(() => align(lines, log), [lines, log]);
  // uPlot's callbacks outlive a rendering, so they read the newest data, range and callback from here.
  const newest = useRef<Newest>({ data, lines, zoom, onZoom });
  const styles = JSON.stringify(lines.map(styleOf)); // equal texts for equal styles
  const zoomable = onZoom !== undefined;

  useEffect(() => {
    newest.current = { data, lines, zoom, onZoom };
    plot.current?.setData(data);
    if (plot.current) showNewest(plot.current);
  }, [data, lines, zoom, onZoom]);

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(options(element, styles, newest, { format, group, along, log, zoomable }), newest.current.data, element);
    plot.current = made;
    showNewest(made);
    const watcher = new ResizeObserver(() => { made.setSize({ width: element.clientWidth, height: tall ? element.clientHeight - legendHeight(element) : HEIGHT }); });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [styles, format, group, along, log, zoomable, dark, tall]);

  return (
    <figure className="chart card" aria-label={`${title}. ${summary}`}>
      <figcaption className="chart-head"><span className="chart-title">{title}</span>{children}</figcaption>
      <div ref={box} className="chart-box" />
    </figure>
  );
}

const legendHeight = (element: HTMLElement) => element.querySelector<HTMLElement>(".u-legend")?.offsetHeight ?? 0;

interface Newest {
  data: uPlot.AlignedData;
  lines: readonly Line[];
  zoom: Zoom | null;
  onZoom: ChartProps["onZoom"];
}

/** One column of steps for all lines; a line has no value (undefined) where only another one has. A band is two lines more. */
function align(lines: readonly Line[], log: boolean): uPlot.AlignedData {
  const shown = log ? (value: number | null | undefined) => (value != null && value > 0 ? value : null) : (value: number | null | undefined) => value ?? null;
  const tables = lines.map(({ points, band }) => {
    const columns = [points.map((p) => p.x), points.map((p) => shown(p.y))];
    if (band) columns.push(points.map((p) => shown(p.low)), points.map((p) => shown(p.high)));
    return columns as uPlot.AlignedData;
  });
  return tables.length === 1 && tables[0] ? tables[0] : uPlot.join(tables);
}

/** How a line is drawn, without its points. */
interface Style extends Pick<Line, "label" | "colour"> {
  kind: "scattered" | "dots" | "faint" | "line";
  band: boolean;
}

const styleOf = ({ label, colour, dots, scattered, faint, band = false }: Line): Style => ({
  label,
  colour,
  kind: scattered ? "scattered" : dots ? "dots" : faint ? "faint" : "line",
  band,
});

interface DrawOptions extends Required<Pick<ChartProps, "format" | "group" | "along" | "log">> {
  zoomable: boolean;
}

function options(element: HTMLElement, styles: string, newest: { readonly current: Newest }, draw: DrawOptions): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const { along, log, zoomable, group } = draw;
  const { onAxis = along.format, space = 60 } = along;
  const axis: uPlot.Axis = {
    stroke: colour("quiet"),
    font: `11.5px ${style.fontFamily}`,
    grid: { stroke: colour("faint-line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(element.clientWidth, 50),
    height: HEIGHT,
    scales: { x: { time: false, range: (_, low, high) => rangeOf(newest.current.zoom, low, high) }, y: log ? { distr: LOGARITHMIC, log: 10 } : { range: (_, low, high) => valuesOf(low, high) } },
    cursor: {
      // Charts of a group share the place of the pointer. The page passes the zoom of one of them to the others.
      sync: { key: group, filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" && type !== "dblclick", sub: () => true } },
      points: { size: 7 },
      drag: { x: zoomable, y: false, setScale: false },
      bind: { dblclick: () => () => { newest.current.onZoom?.(null); return null; } },
    },
    padding: [8, space / 2, 0, 0], // half of the last tick's text
    hooks: { setCursor: [showNewest], setSelect: [(plot) => { select(plot, newest.current.onZoom); }] },
    axes: [
      {
        ...axis, space, size: 28, ...(along.increments && { incrs: [...along.increments] }),
        values: (_, ticks, __, ___, increment) => ticks.map((tick) => (Number.isInteger(tick) ? onAxis(tick, increment) : "")),
      },
      { ...axis, size: axisWidth, values: (_, ticks) => ticks.map((tick) => tickText(tick)) },
    ],
    ...series(styles, colour, newest, draw),
  };
}

/** Of each style, in the order of `align`: its line, and the two bounds of its band. */
function series(styles: string, colour: (name: string) => string, newest: { readonly current: Newest }, { format, along }: DrawOptions): Pick<uPlot.Options, "series" | "bands"> {
  const shown = () => newest.current.lines.filter(({ faint }) => !faint).map(({ points }) => points);
  const made: uPlot.Series[] = [{ label: along.name, value: (_, at: number | null) => legendPlace(shown(), at, along.format) }];
  const bands: uPlot.Band[] = [];
  for (const [line, { label, colour: name, kind, band }] of (JSON.parse(styles) as Style[]).entries()) {
    const value: uPlot.Series.Value = (plot, _, __, index) => {
      const x = index === null ? null : plot.data[0][index];
      return x == null ? format(null) : legendValue(newest.current.lines[line]?.points ?? [], x, isPointed(plot), format, along.format);
    };
    const stroke = colour(name);
    const dots = kind === "dots" || kind === "scattered";
    if (kind === "faint") made.push({ ...NOT_IN_LEGEND, stroke: `${stroke}66`, width: 1 });
    else made.push({ label, stroke, value, width: 1.5, points: dots ? { show: true, size: 6, fill: stroke } : { show: false, filter: alone, size: 5, fill: stroke }, ...(kind === "scattered" && { paths: () => null }) });
    if (band) {
      const bound = { ...NOT_IN_LEGEND, stroke: `${stroke}66`, width: 0.75 }; // else a spike one column wide is hardly seen
      made.push(bound, bound);
      bands.push({ series: [made.length - 1, made.length - 2], fill: `${stroke}38` });
    }
  }
  return { series: made, bands };
}

/** A value without a neighbour is a point: no line leads to it. */
const alone: uPlot.Series.Points.Filter = (plot, line) => isolated(plot.data[line] as (number | null | undefined)[]);

/** A line that the legend passes over. */
const NOT_IN_LEGEND: uPlot.Series = { class: "chart-not-in-legend", points: { show: false } };

/** A drag shorter than this was a click. */
const DRAG_PX = 6;

function select(plot: uPlot, onZoom: ChartProps["onZoom"]): void {
  const { left, width } = plot.select;
  if (width === 0) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (width >= DRAG_PX) onZoom?.([Math.round(plot.posToVal(left, "x")), Math.round(plot.posToVal(left + width, "x"))]);
}

const isPointed = (plot: uPlot) => (plot.cursor.left ?? -1) >= 0;

/** Without a cursor the legend shows the last step in view. */
function showNewest(plot: uPlot): void {
  if (!isPointed(plot)) plot.setLegend({ idx: plot.series[0]?.idxs?.[1] ?? plot.data[0].length - 1 });
}

/** A first step alone still needs a width. */
function rangeOf(zoom: Zoom | null, low: number, high: number): uPlot.Range.MinMax {
  if (zoom !== null) return [zoom[0], Math.max(zoom[1], zoom[0] + 1)];
  return Number.isFinite(low) && Number.isFinite(high) ? [low, Math.max(high, low + 1)] : [1, 10];
}

/** The range of the values' axis. uPlot gives null for both where there are none. */
function valuesOf(low: number | null, high: number | null): uPlot.Range.MinMax {
  return low === null || high === null ? [0, 1] : uPlot.rangeNum(...spread(low, high), 0.1, true);
}

/** `0.0025`, `12.5k`, `3M`, `2e-5`: short enough for the axis. */
/* uPlot leaves ticks between powers of ten unsaid as null. */
function tickText(tick: number | null): string {
  if (tick === null) return "";
  const size = Math.abs(tick);
  if (size >= 1e6) return `${Number((tick / 1e6).toPrecision(4))}M`;
  if (size >= 1000) return `${Number((tick / 1000).toPrecision(4))}k`;
  return size !== 0 && size < 1e-3 ? tick.toExponential().replace(/(\.\d\d)\d+e/, "$1e") : String(Number(tick.toPrecision(4)));
}

/** As wide as its longest text, so that none is cut off. */
const axisWidth: uPlot.Axis.Size = (plot, values) => {
  const longest = (values as string[] | null)?.reduce((a, b) => (b.length > a.length ? b : a), "") ?? "";
  if (longest === "") return 48;
  plot.ctx.save();
  plot.ctx.font = `${11.5 * devicePixelRatio}px ${getComputedStyle(plot.root).fontFamily}`;
  const { width } = plot.ctx.measureText(longest);
  plot.ctx.restore();
  return Math.max(48, Math.ceil(width / devicePixelRatio) + 14);
};

const isDark = () => document.documentElement.dataset.theme === "dark";

function onTheme(change: () => void): () => void {
  const observer = new MutationObserver(change);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return () => { observer.disconnect(); };
}
