/** A traced step: a lane per rank, and below them the ideal schedule on the same scale. Used by pointer, wheel and keyboard. */

import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type RefObject } from "react";
import type { StepSpans, TimeRange } from "../../api/traces";
import { useWidth } from "../../hooks/use-width";
import { inView, describeSpan, categoryOf, CATEGORIES, formatMicros, moved, paths, spanAt, type View, zoomed } from "../../model/lane";
import { type Chosen, onKey } from "../../model/lane-keys";
import { LANE, type Lane, lanesOf, PIPELINE_HEAD, PITCH } from "../../model/lanes";
import "./traces.css";

export interface PipelineTimelineProps {
  /** The whole step. */
  whole: StepSpans;
  /** What is in view, with spans that did not fit into the whole. */
  detail: StepSpans | null;
  bubble: { measured: number | null; ideal: number | null };
  onRange: (range: TimeRange) => void;
}

/** Room for the ranks' names, in px. */
const LABELS = 92;

export function PipelineTimeline({ whole, detail, bubble, onRange }: PipelineTimelineProps) {
  const box = useRef<HTMLDivElement>(null);
  const picture = useRef<SVGSVGElement>(null);
  const help = useId();
  const width = useWidth(box) - LABELS;
  const [view, setView] = useState<View>({ from: 0, to: whole.length });
  const [chosen, choose] = useState<Chosen | null>(null);
  const [pipeline, setPipeline] = useState(0);
  const lanes = useMemo(() => lanesOf(whole, detail ?? whole, pipeline), [whole, detail, pipeline]);
  const show = (next: View) => {
    setView(next);
    onRange(next.to - next.from < whole.length ? [next.from, next.to] : null);
  };
  const timeAt = (clientX: number) => {
    const left = LABELS + (picture.current?.getBoundingClientRect().left ?? 0);
    return view.from + ((clientX - left) / width) * (view.to - view.from);
  };
  useWheel(box, (event) => { show(wheeled(event, view, width, timeAt(event.clientX), whole.length)); });
  const drag = useDrag(view, width, whole.length, show);
  const onPointerMove = (event: PointerEvent<HTMLDivElement>) => {
    if (drag.move(event)) return;
    const y = event.clientY - (picture.current?.getBoundingClientRect().top ?? 0);
    const lane = lanes.rows.find((row) => y >= row.y && y < row.y + PITCH);
    const time = timeAt(event.clientX);
    const span = lane && (y < lane.y + LANE ? (spanAt(lane.spans, time) ?? spanAt(lane.drawn, time)) : spanAt(lane.background, time));
    choose(lane && span ? { lane, span } : null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = onKey(event, { view, chosen, lanes: lanes.rows, length: whole.length });
    if (next === null) return;
    event.preventDefault();
    if (next.view) show(next.view);
    if (next.chosen !== undefined) choose(next.chosen);
    if (next.chosen && box.current) reveal(box.current, next.chosen.lane);
  };
  return (
    <div className="pipeline-timeline">
      <Legend whole={whole} />
      <IdealOf whole={whole} chosen={pipeline} onChange={setPipeline} />
      <div
        ref={box}
        className="lanes"
        role="application"
        tabIndex={0}
        aria-label={`Timeline of step ${whole.step}: ${whole.ranks.length} ranks, ${formatMicros(whole.length)}`}
        aria-describedby={help}
        onKeyDown={onKeyDown}
        onPointerDown={drag.begin}
        onPointerUp={drag.end}
        onPointerMove={onPointerMove}
        onPointerLeave={() => { choose(null); }}
        onDoubleClick={() => { show({ from: 0, to: whole.length }); }}
      >
        <svg ref={picture} aria-hidden="true" width={width + LABELS} height={lanes.height}>
          {lanes.heads.map(({ text, y }) => <text key={text} className="lanes-head" x={0} y={y + PIPELINE_HEAD - 6}>{text}</text>)}
          {lanes.rows.map((lane) => <DrawnLane key={lane.name} lane={lane} view={view} width={width} />)}
          {chosen && <Mark chosen={chosen} view={view} width={width} />}
        </svg>
      </div>
      <Scale view={view} />
      <p className="lanes-chosen number" role="status">{chosen ? describeSpan(chosen.lane.rank, chosen.span) : ""}</p>
      <p className="quiet lanes-help" id={help}>
        Arrow keys go from span to span and from rank to rank; + and − or the wheel zoom, Shift with arrows or dragging moves, 0 shows the whole step.
      </p>
      {bubble.measured !== null && <p className="lanes-bubble">{formatBubble(bubble.measured, bubble.ideal)}</p>}
    </div>
  );
}

const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;

const formatBubble = (measured: number, ideal: number | null) =>
  `bubble ${percent(measured)} measured${ideal === null ? "" : `, ${percent(ideal)} ideal`}`;

/** Of what there is. */
function Legend({ whole }: { whole: StepSpans }) {
  const there = useMemo(() => new Set(whole.ranks.flatMap(({ spans, rest }) => [...spans, ...(rest ? [rest] : [])].map(({ category }) => categoryOf(category).name))), [whole]);
  return (
    <ul className="lanes-legend" aria-label="Legend">
      {CATEGORIES.filter(({ name }) => there.has(name)).map(({ name, label, height, letter }) => (
        <li key={name}>
          <svg aria-hidden="true" width="14" height={LANE}><rect className={`span-${name}`} y={LANE * (1 - height)} width="14" height={LANE * height} /></svg>
          {letter === "" ? label : `${label} (${letter})`}
        </li>
      ))}
    </ul>
  );
}

/** The choice of a pipeline, where there are several. */
function IdealOf({ whole, chosen, onChange }: { whole: StepSpans; chosen: number; onChange: (pipeline: number) => void }) {
  const pipelines = [...new Set(whole.ranks.flatMap(({ pipeline }) => pipeline ?? []))].toSorted((one, other) => one - other);
  if (pipelines.length < 2) return null;
  return (
    <label className="lanes-pipeline">
      <span className="label">Ideal schedule of</span>
      <select value={chosen} onChange={(event) => { onChange(Number(event.target.value)); }}>
        {pipelines.map((number) => <option key={number} value={number}>Pipeline {number}</option>)}
      </select>
    </label>
  );
}

/** Least width of a span with a letter, in px. */
const READABLE = 16;

function DrawnLane({ lane, view, width }: { lane: Lane; view: View; width: number }) {
  const main = useMemo(() => paths(lane.drawn, view, width, LANE), [lane, view, width]);
  const behind = useMemo(() => paths(lane.background, view, width, PITCH - LANE - 2), [lane, view, width]);
  const scale = width / (view.to - view.from);
  const wide = inView(lane.marked, view).filter(({ length, category }) => length * scale >= READABLE && categoryOf(category).letter !== "");
  return (
    <g transform={`translate(0 ${lane.y})`}>
      <text className="lane-name" x={0} y={LANE - 4}>{lane.name}</text>
      <g transform={`translate(${LABELS} 0)`}>
        <rect className="lane-track" width={Math.max(0, width)} height={LANE} />
        {[...main].map(([name, path]) => <path key={name} className={`span-${name}`} d={path} />)}
        <g transform={`translate(0 ${LANE + 1})`}>{[...behind].map(([name, path]) => <path key={name} className={`span-${name}`} d={path} />)}</g>
        {wide.map((span) => (
          <text key={`${span.start} ${span.name}`} className="span-letter" x={Math.max(2, (span.start - view.from) * scale + 3)} y={LANE - 4}>
            {categoryOf(span.category).letter}{span.microbatch ?? ""}
          </text>
        ))}
      </g>
    </g>
  );
}

function Mark({ chosen: { lane, span }, view, width }: { chosen: Chosen; view: View; width: number }) {
  const scale = width / (view.to - view.from);
  const left = Math.max(0, (span.start - view.from) * scale);
  const right = Math.min(width, (span.start + span.length - view.from) * scale);
  return <rect className="span-chosen" x={LABELS + left} y={lane.y - 1} width={Math.max(2, right - left)} height={PITCH} />;
}

function Scale({ view }: { view: View }) {
  return (
    <p className="lanes-scale number quiet">
      <span>{formatMicros(view.from)}</span>
      <span>{formatMicros((view.from + view.to) / 2)}</span>
      <span>{formatMicros(view.to)}</span>
    </p>
  );
}

/** Scrolls no farther than it must. */
function reveal(box: HTMLElement, { y }: Lane): void {
  box.scrollTop = Math.min(y, Math.max(box.scrollTop, y + PITCH - box.clientHeight));
}

/** Along the time with a wheel that goes sideways or Shift, else nearer or farther. */
function wheeled(event: WheelEvent, view: View, width: number, time: number, length: number): View {
  const along = event.shiftKey ? event.deltaX + event.deltaY : event.deltaX;
  if (Math.abs(along) >= Math.abs(event.deltaY)) return moved(view, (along / width) * (view.to - view.from), length);
  return zoomed(view, Math.exp(event.deltaY / 400), time, length);
}

/** The wheel zooms while the timeline has the focus, or with Ctrl; else it scrolls the page. */
function useWheel(box: RefObject<HTMLDivElement | null>, onWheel: (event: WheelEvent) => void): void {
  const newest = useRef(onWheel);
  useEffect(() => { newest.current = onWheel; });
  useEffect(() => {
    const element = box.current;
    const listener = (event: WheelEvent) => {
      if (!event.ctrlKey && document.activeElement !== element) return;
      event.preventDefault();
      newest.current(event);
    };
    element?.addEventListener("wheel", listener, { passive: false }); // React's own listener may not prevent the scrolling
    return () => element?.removeEventListener("wheel", listener);
  }, [box]);
}

function useDrag(view: View, width: number, length: number, show: (view: View) => void) {
  const held = useRef<{ x: number; view: View } | null>(null);
  return {
    begin: (event: PointerEvent<HTMLDivElement>) => { held.current = { x: event.clientX, view }; },
    end: () => { held.current = null; },
    move: (event: PointerEvent<HTMLDivElement>): boolean => {
      if (held.current === null || event.buttons === 0) return false;
      const { x, view: before } = held.current;
      show(moved(before, ((x - event.clientX) / width) * (before.to - before.from), length));
      return true;
    },
  };
}
