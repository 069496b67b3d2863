/** The settings of a job's charts: which of them, and how they are drawn. A range can also be drawn in a chart itself. */

import { useState, type SyntheticEvent } from "react";
import { type ChartView, MOST_TEXT, rangeOf } from "../model/chart-view";
import { integer } from "../model/format";
import { AXES, type Axis } from "../model/runs";
import "./chart-controls.css";

export interface ChartControlsProps {
  view: ChartView;
  onChange: (changes: Partial<ChartView>) => void;
  lastStep: number;
  /** How many charts are found. */
  count: number;
  /** Whether steps have tokens and times. */
  axes: boolean;
}

export function ChartControls({ view: { find, smooth, log, by, zoom }, onChange, lastStep, count, axes }: ChartControlsProps) {
  return (
    <div className="chart-controls card" role="group" aria-label="Which charts, and how they are drawn">
      <div role="search">
        <label>
          <span className="unseen">Find metrics</span>
          <input type="search" placeholder="Find metrics" maxLength={MOST_TEXT} value={find} onChange={(event) => { onChange({ find: event.target.value }); }} />
        </label>{" "}
        <span className="quiet number" role="status">{integer(count)} {count === 1 ? "metric" : "metrics"}</span>
      </div>
      <label>
        Smoothing
        <input type="range" min={0} max={0.99} step={0.01} value={smooth} onChange={(event) => { onChange({ smooth: Number(event.target.value) }); }} />
        <output className="number">{smooth.toFixed(2)}</output>
      </label>
      <label><input type="checkbox" checked={log} onChange={(event) => { onChange({ log: event.target.checked }); }} /> Log axis</label>
      {axes && (
        <label>
          Along{" "}
          <select value={by} onChange={(event) => { onChange({ by: event.target.value as Axis }); }}>
            {AXES.map((axis) => <option key={axis} value={axis}>{axis === "step" ? "steps" : axis}</option>)}
          </select>
        </label>
      )}
      <Steps key={zoom?.join() ?? ""} from={zoom?.[0] ?? 1} to={zoom?.[1] ?? lastStep} given={zoom !== null} onChange={onChange} />
    </div>
  );
}

function Steps({ from, to, given, onChange }: { from: number; to: number; given: boolean; onChange: ChartControlsProps["onChange"] }) {
  const [text, setText] = useState({ from: given ? String(from) : "", to: given ? String(to) : "" });
  const [invalid, setInvalid] = useState(false);
  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    const zoom = rangeOf(stepOf(text.from, from), stepOf(text.to, to));
    setInvalid(zoom === null);
    if (zoom) onChange({ zoom });
  };
  const write = (changes: Partial<typeof text>) => {
    setText({ ...text, ...changes });
    setInvalid(false);
  };
  return (
    <form className="chart-steps" onSubmit={go}>
      <label>Steps <input inputMode="numeric" size={7} placeholder={String(from)} value={text.from} aria-invalid={invalid} onChange={(event) => { write({ from: event.target.value }); }} /></label>
      <label>to <input inputMode="numeric" size={7} placeholder={String(to)} value={text.to} aria-invalid={invalid} onChange={(event) => { write({ to: event.target.value }); }} /></label>
      <button className="button small" type="submit">Zoom</button>
      <button className="button small" type="button" disabled={!given} onClick={() => { onChange({ zoom: null }); }}>All steps</button>
      {invalid && <span className="bad" role="alert">Use two whole numbers, the smaller first.</span>}
    </form>
  );
}

/** A step as it is written, also with separators between thousands, as the page shows it. */
const stepOf = (text: string, otherwise: number) => Number(text.replace(/[\s,_]/g, "") || otherwise);
