/** Lines over steps, or over what else they are compared by, drawn by uPlot on a canvas; its colours are the page's. */

import { useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { integer } from "../services/format";
import "./chart.css";

export interface Line {
  label: string;
  /** A colour of the theme, without its dashes: `blue`. */
  colour: string;
  dots?: boolean;
  points: readonly { x: number; y: number | null }[];
}

export interface ChartProps {
  title: string;
  /** What the chart shows in words, for those who cannot see it. */
  summary: string;
  lines: readonly Line[];
  format: (value: number | null) => string;
  /** Charts of one group share their cursor. */
  group: string;
  /** What the lines run along. */
  along?: Along;
}

export interface Along {
  name: string;
  format: (value: number | null) => string;
}

const STEPS: Along = { name: "Step", format: integer };

const HEIGHT = 220;

export function Chart({ title, summary, lines, format, group, along = STEPS }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useSyncExternalStore(onTheme, isDark);
  const data = useMemo(() => align(lines), [lines]);
  const newest = useRef(data);
  const looks = lines.map(({ label, colour, dots }) => `${label}|${colour}|${dots ? "dots" : "line"}`).join("\n");

  useEffect(() => {
    newest.current = data;
    plot.current?.setData(data);
    if (plot.current) showNewest(plot.current);
  }, [data]);

  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(options(element, looks, { format, group, along }), newest.current, element);
    plot.current = made;
    showNewest(made);
    const watcher = new ResizeObserver(() => { made.setSize({ width: element.clientWidth, height: HEIGHT }); });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [looks, format, group, along, dark]);

  return (
    <figure className="chart card" aria-label={`${title}. ${summary}`}>
      <figcaption className="chart-title">{title}</figcaption>
      <div ref={box} className="chart-box" />
    </figure>
  );
}

/** One column of steps for all lines; a line has no value (undefined) where only another one has. */
function align(lines: readonly Line[]): uPlot.AlignedData {
  const tables = lines.map(({ points }) => [points.map((p) => p.x), points.map((p) => p.y)] as uPlot.AlignedData);
  return tables.length === 1 && tables[0] ? tables[0] : uPlot.join(tables);
}

type Ways = Required<Pick<ChartProps, "format" | "group" | "along">>;

function options(element: HTMLElement, looks: string, { format, group, along }: Ways): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const font = `11.5px ${style.fontFamily}`;
  const axis: uPlot.Axis = {
    stroke: colour("quiet"),
    font,
    grid: { stroke: colour("faint-line"), width: 1 },
    ticks: { show: false },
  };
  const value: uPlot.Series.Value = (plot, _, series, at) => format(newestUntil(plot.data[series], at));
  return {
    width: Math.max(element.clientWidth, 50),
    height: HEIGHT,
    scales: { x: { time: false, range: fromStepOne } },
    cursor: { sync: { key: group }, points: { size: 7 } },
    padding: [8, 12, 0, 0],
    hooks: { setCursor: [showNewest] },
    axes: [
      { ...axis, space: 55, size: 28, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? along.format(tick) : "")) },
      { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => tickText(tick)) },
    ],
    series: [
      { label: along.name, value: (_, at: number | null) => along.format(at) },
      ...looks.split("\n").map((look): uPlot.Series => {
        const [label = "", name = "", kind] = look.split("|");
        const stroke = colour(name);
        const dots = kind === "dots";
        return { label, stroke, value, width: 1.5, points: dots ? { show: true, size: 6, fill: stroke } : { show: false } };
      }),
    ],
  };
}

/** The legend tells of the step under the cursor, and of the newest step while there is no cursor. */
function showNewest(plot: uPlot): void {
  if ((plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: plot.data[0].length - 1 });
}

/** The last value told at or before index `at`: validations are rarer than steps. */
function newestUntil(values: ArrayLike<number | null | undefined> | undefined, at: number | null): number | null {
  for (let index = at ?? -1; values && index >= 0; index -= 1) {
    const value = values[index];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

/** A first step alone still needs a width. */
const fromStepOne: uPlot.Range.Function = (_, low, high) =>
  Number.isFinite(low) && Number.isFinite(high) ? [low, Math.max(high, low + 1)] : [1, 10];

function tickText(tick: number): string {
  if (Math.abs(tick) >= 1000) return `${Number((tick / 1000).toPrecision(4))}k`;
  return String(Number(tick.toPrecision(4)));
}

const DARK = "(prefers-color-scheme: dark)";
const isDark = () => matchMedia(DARK).matches;

function onTheme(change: () => void): () => void {
  const query = matchMedia(DARK);
  query.addEventListener("change", change);
  return () => { query.removeEventListener("change", change); };
}
