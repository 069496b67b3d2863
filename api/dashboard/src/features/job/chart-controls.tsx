/** The settings of a job's charts. A range can also be drawn in a chart itself. */

import { useState, type SyntheticEvent } from "react";
import { type ChartView, rangeOf } from "../../model/chart-view";
import "./job.css";

export interface ChartControlsProps {
  view: ChartView;
  onChange: (changes: Partial<ChartView>) => void;
  lastStep: number;
}

export function ChartControls({ view: { smooth, log, zoom }, onChange, lastStep }: ChartControlsProps) {
  return (
    <div className="chart-controls card" role="group" aria-label="How the charts are drawn">
      <label>
        Smoothing
        <input type="range" min={0} max={0.99} step={0.01} value={smooth} onChange={(event) => { onChange({ smooth: Number(event.target.value) }); }} />
        <output className="number">{smooth.toFixed(2)}</output>
      </label>
      <label><input type="checkbox" checked={log} onChange={(event) => { onChange({ log: event.target.checked }); }} /> Log axis</label>
      <Steps key={zoom?.join() ?? ""} from={zoom?.[0] ?? 1} to={zoom?.[1] ?? lastStep} given={zoom !== null} onChange={onChange} />
    </div>
  );
}

function Steps({ from, to, given, onChange }: { from: number; to: number; given: boolean; onChange: ChartControlsProps["onChange"] }) {
  const [text, setText] = useState({ from: given ? String(from) : "", to: given ? String(to) : "" });
  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    onChange({ zoom: rangeOf(Number(text.from || from), Number(text.to || to)) });
  };
  return (
    <form className="chart-steps" onSubmit={go}>
      <label>Steps <input inputMode="numeric" size={7} placeholder={String(from)} value={text.from} onChange={(event) => { setText({ ...text, from: event.target.value }); }} /></label>
      <label>to <input inputMode="numeric" size={7} placeholder={String(to)} value={text.to} onChange={(event) => { setText({ ...text, to: event.target.value }); }} /></label>
      <button className="button small" type="submit">Zoom</button>
      <button className="button small" type="button" disabled={!given} onClick={() => { onChange({ zoom: null }); }}>All steps</button>
    </form>
  );
}
