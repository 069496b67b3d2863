/** The button and the dialog that choose further columns of the table of jobs. */

import { useState } from "react";
import type { Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { pathsOf } from "../../model/job-columns";
import "./choose-columns.css";

/** At most this number of fields is listed; the search finds the others. */
const MOST_LISTED = 100;

export interface ChooseColumnsProps {
  jobs: readonly Job[];
  columns: readonly string[];
  onChange: (columns: readonly string[]) => void;
}

export function ChooseColumns(props: ChooseColumnsProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button className="button" onClick={() => { setOpen(true); }}>Columns…</button>
      {open && <Dialog {...props} onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ jobs, columns, onChange, onDone }: ChooseColumnsProps & { onDone: () => void }) {
  const [text, setText] = useState("");
  const [first] = useState(columns);
  const paths = [...new Set([...first, ...pathsOf(jobs)])].filter((path) => path.toLowerCase().includes(text.toLowerCase()));
  const toggle = (path: string) => { onChange(columns.includes(path) ? columns.filter((known) => known !== path) : [...columns, path]); };
  return (
    <Confirm title="Columns" no="Close" onNo={onDone}>
      <p>Fields of the specs, labels and results of the jobs that are loaded. Those in which they differ come first.</p>
      <label className="choose-columns-search">
        <span className="unseen">Find a field</span>
        <input type="search" placeholder="Find a field" value={text} onChange={(event) => { setText(event.target.value); }} />
      </label>
      <ul className="choose-columns" aria-label="Fields">
        {paths.slice(0, MOST_LISTED).map((path) => (
          <li key={path}>
            <label><input type="checkbox" checked={columns.includes(path)} onChange={() => { toggle(path); }} /> <code>{path}</code></label>
          </li>
        ))}
      </ul>
      {paths.length === 0 && <p className="quiet">No field has this in its name.</p>}
      {paths.length > MOST_LISTED && <p className="quiet">and {paths.length - MOST_LISTED} more: search for them</p>}
    </Confirm>
  );
}
