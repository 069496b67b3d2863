/** Which metrics the table has, which value of each, and whether the charts show differences. */

import { useState } from "react";
import { ChooseDialog } from "../../components/choose-dialog";
import { type CompareView, MOST_COLUMNS } from "../../model/compare-view";
import { RESULTS, type ResultKind } from "../../model/results";
import "./compare.css";

const NAMES: Readonly<Record<ResultKind, string>> = { last: "Last value", lowest: "Lowest value", highest: "Highest value" };

export interface ResultControlsProps {
  view: CompareView;
  onChange: (changes: Partial<CompareView>) => void;
  /** Paths of the metrics that the table can have, and has. */
  paths: readonly string[];
  columns: readonly string[];
  /** The baseline's name; null with fewer than two runs. */
  baseline: string | null;
}

export function ResultControls({ view, onChange, paths, columns, baseline }: ResultControlsProps) {
  const [open, setOpen] = useState(false);
  const about = "Metrics of the table: what trainings report, and what the runs logged.";
  return (
    <div className="result-controls card" role="group" aria-label="Results">
      <label>
        Table{" "}
        <select value={view.result} onChange={(event) => { onChange({ result: event.target.value as ResultKind }); }}>
          {RESULTS.map((kind) => <option key={kind} value={kind}>{NAMES[kind]}</option>)}
        </select>
      </label>
      <button className="button" onClick={() => { setOpen(true); }}>Metrics…</button>
      {baseline !== null && (
        <label>
          <input type="checkbox" checked={view.difference} onChange={(event) => { onChange({ difference: event.target.checked }); }} /> Charts show the difference to {baseline}
        </label>
      )}
      {open && <ChooseDialog title="Metrics" about={about} noun="metric" paths={paths} chosen={columns} most={MOST_COLUMNS} onChange={(chosen) => { onChange({ columns: chosen }); }} onDone={() => { setOpen(false); }} />}
    </div>
  );
}
