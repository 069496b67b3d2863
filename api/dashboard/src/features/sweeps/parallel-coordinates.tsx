/**
 * Trials as lines over an axis for each parameter and one for the metric. A drag along an axis, or keys at its two ends, keep the trials
 * that pass there. The table below has the same numbers.
 */

import { type KeyboardEvent, memo, type PointerEvent, useMemo, useRef } from "react";
import type { Sweep, Trial } from "../../api/sweeps";
import { useWidth } from "../../hooks/use-width";
import { type Axis, type Brushes, LEVELS, levelsOf } from "../../model/parallel-axes";
import "./parallel-coordinates.css";

const HEIGHT = 220;
const TOP = 46;
const BOTTOM = 26;
const SIDE = 70;
/** Between two axes, at least. */
const PITCH = 112;
const LONGEST_NAME = 17;
/** More lines are thinner. */
const MANY = 200;
/** A shorter drag was a click, which removes the axis's brush. */
const CLICK = 0.02;

export interface ParallelCoordinatesProps {
  sweep: Sweep;
  trials: readonly Trial[];
  axes: readonly Axis[];
  brushes: Brushes;
  onBrushes: (brushes: Brushes) => void;
  /** Numbers of the trials that the brushes keep. */
  kept: ReadonlySet<number>;
  /** Number of the trial that the user points at. */
  chosen: number | null;
}

export function ParallelCoordinates({ sweep, trials, axes, brushes, onBrushes, kept, chosen }: ParallelCoordinatesProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = Math.max(useWidth(box), 2 * SIDE + (axes.length - 1) * PITCH);
  const pitch = (width - 2 * SIDE) / Math.max(1, axes.length - 1);
  const brush = (id: string, range: readonly [number, number] | null) => {
    const others = Object.entries(brushes).filter(([known]) => known !== id);
    onBrushes(Object.fromEntries(range === null || (range[0] <= 0 && range[1] >= 1) ? others : [...others, [id, range]]));
  };
  return (
    <section className="parallel card" aria-label="Parameters and metric">
      <div className="card-head">
        <h2>Parameters and metric</h2>
        {Object.keys(brushes).length > 0 && <button className="button small" onClick={() => { onBrushes({}); }}>Show all trials</button>}
      </div>
      <div className="parallel-box" ref={box} tabIndex={0} role="group" aria-label="Axes">
        <svg width={width} height={TOP + HEIGHT + BOTTOM} role="group" aria-label="Each line is a trial; the table has the same. Drag along an axis to keep the trials that pass there.">
          <Lines sweep={sweep} trials={trials} axes={axes} kept={kept} chosen={chosen} pitch={pitch} />
          {axes.map((axis, index) => (
            <AxisView key={axis.id} axis={axis} x={SIDE + index * pitch} brush={brushes[axis.id] ?? null} onBrush={(range) => { brush(axis.id, range); }} />
          ))}
        </svg>
      </div>
      <Legend metric={sweep.metric} />
    </section>
  );
}

const yOf = (place: number) => TOP + (1 - place) * HEIGHT;

type LinesProps = Pick<ParallelCoordinatesProps, "sweep" | "trials" | "axes" | "kept" | "chosen"> & { pitch: number };

/** One path for each colour, so that a thousand trials cost what a few cost. */
const Lines = memo(function Lines({ sweep, trials, axes, kept, chosen, pitch }: LinesProps) {
  const { goal, best } = sweep;
  const shapes = useMemo(() => new Map(trials.map((trial) => [trial.number, shapeOf(trial, axes, pitch)])), [trials, axes, pitch]);
  const paths = useMemo(() => {
    const levels = levelsOf(trials, goal);
    const found = new Map<string, string>();
    for (const [number, shape] of shapes) {
      const level = levels.get(number);
      const name = !kept.has(number) ? "out" : level === undefined ? "level-none" : `level-${level}`;
      found.set(name, (found.get(name) ?? "") + shape);
    }
    return found;
  }, [trials, goal, shapes, kept]);
  const names = ["out", "level-none", ...Array.from({ length: LEVELS }, (_, level) => `level-${level}`)];
  return (
    <g aria-hidden="true" className="parallel-lines" data-many={trials.length > MANY || undefined}>
      {names.map((name) => paths.has(name) && <path key={name} className={name} d={paths.get(name)} />)}
      {best !== null && kept.has(best.number) && <path className="best" d={shapes.get(best.number)} />}
      {chosen !== null && <path className="chosen" d={shapes.get(chosen)} />}
    </g>
  );
});

/** The line is interrupted where the trial has no value. */
function shapeOf(trial: Trial, axes: readonly Axis[], pitch: number): string {
  let shape = "";
  let joined = false;
  axes.forEach((axis, index) => {
    const place = axis.place(trial);
    if (place !== null) shape += `${joined ? "L" : "M"}${(SIDE + index * pitch).toFixed(1)} ${yOf(place).toFixed(1)}`;
    joined = place !== null;
  });
  return shape;
}

interface AxisViewProps {
  axis: Axis;
  x: number;
  brush: readonly [number, number] | null;
  onBrush: (brush: readonly [number, number] | null) => void;
}

function AxisView({ axis, x, brush, onBrush }: AxisViewProps) {
  const from = useRef<number | null>(null);
  const [low, high] = brush ?? [0, 1];
  const placeAt = ({ currentTarget, clientY }: PointerEvent<SVGRectElement>) => {
    const { top, height } = currentTarget.getBoundingClientRect();
    return height === 0 ? 0 : Math.min(1, Math.max(0, 1 - (clientY - top) / height));
  };
  const drag = (event: PointerEvent<SVGRectElement>) => {
    if (from.current === null) return;
    const to = placeAt(event);
    onBrush(Math.abs(to - from.current) < CLICK ? null : [Math.min(from.current, to), Math.max(from.current, to)]);
  };
  return (
    <g className="parallel-axis" transform={`translate(${x} 0)`}>
      <text className="parallel-name" y="16" textAnchor="middle">{axis.name.length > LONGEST_NAME ? `…${axis.name.slice(1 - LONGEST_NAME)}` : axis.name}<title>{axis.id || axis.name}</title></text>
      <line y1={TOP} y2={TOP + HEIGHT} />
      {axis.ticks.map(({ place, text }) => (
        <g key={place} aria-hidden="true" transform={`translate(0 ${yOf(place)})`}>
          <line x2="4" />
          <text x="7" dy="0.35em">{text.length > LONGEST_NAME ? `${text.slice(0, LONGEST_NAME - 1)}…` : text}</text>
        </g>
      ))}
      {brush && <rect className="parallel-brush" x="-7" width="14" y={yOf(high)} height={Math.max(2, (high - low) * HEIGHT)} />}
      <rect
        className="parallel-drag"
        x="-14"
        width="28"
        y={TOP}
        height={HEIGHT}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          from.current = placeAt(event);
        }}
        onPointerMove={drag}
        onPointerUp={(event) => { drag(event); from.current = null; }}
        onPointerCancel={() => { from.current = null; }}
      />
      <End axis={axis} name="Highest" at={high} onMove={(place) => { onBrush([Math.min(low, place), place]); }} onClear={() => { onBrush(null); }} />
      <End axis={axis} name="Lowest" at={low} onMove={(place) => { onBrush([place, Math.max(high, place)]); }} onClear={() => { onBrush(null); }} />
    </g>
  );
}

interface EndProps {
  axis: Axis;
  name: "Lowest" | "Highest";
  at: number;
  onMove: (place: number) => void;
  onClear: () => void;
}

/** An end of a brush, moved by keys. Escape removes the brush. */
function End({ axis, name, at, onMove, onClear }: EndProps) {
  const onKey = (event: KeyboardEvent) => {
    const moves: Readonly<Record<string, number>> = { ArrowUp: at + axis.step, ArrowRight: at + axis.step, ArrowDown: at - axis.step, ArrowLeft: at - axis.step, PageUp: at + 4 * axis.step, PageDown: at - 4 * axis.step, Home: 0, End: 1 };
    const to = moves[event.key];
    if (to === undefined && event.key !== "Escape") return;
    event.preventDefault();
    if (to === undefined) onClear();
    else onMove(Math.min(1, Math.max(0, to)));
  };
  // Outside the axis, so that both ends stay apart when they are at one place.
  const y = name === "Highest" ? yOf(at) - 24 : yOf(at);
  return (
    <g
      className="parallel-end"
      role="slider"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label={`${name} ${axis.name}`}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(at * 100)}
      aria-valuetext={axis.text(at)}
      transform={`translate(0 ${y})`}
      onKeyDown={onKey}
    >
      <rect x="-12" width="24" height="24" />
      <path d={name === "Highest" ? "M-5 17L5 17L0 23Z" : "M-5 7L5 7L0 1Z"} />
    </g>
  );
}

function Legend({ metric }: { metric: string }) {
  return (
    <div className="parallel-legend">
      <span>{metric}: worst fifth</span>
      <svg viewBox={`0 0 ${LEVELS} 1`} preserveAspectRatio="none" aria-hidden="true">
        {Array.from({ length: LEVELS }, (_, level) => <rect key={level} className={`level-${level}`} x={level} width="1" height="1" />)}
      </svg>
      <span>best fifth</span>
      <span className="parallel-legend-none">no value yet</span>
    </div>
  );
}
