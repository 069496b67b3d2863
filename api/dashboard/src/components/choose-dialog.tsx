/** The dialog that chooses some of many paths, with a search. */

import { useState } from "react";
import { Confirm } from "./confirm";
import "./choose-dialog.css";

/** At most this number of paths is listed; the search finds the others. */
const MOST_LISTED = 100;

export interface ChooseDialogProps {
  title: string;
  /** What can be chosen, in one sentence or two. */
  about: string;
  /** What one of them is called. */
  noun: string;
  paths: readonly string[];
  chosen: readonly string[];
  /** How many can be chosen. */
  most?: number;
  onChange: (chosen: readonly string[]) => void;
  onDone: () => void;
}

export function ChooseDialog({ title, about, noun, paths, chosen, most = Infinity, onChange, onDone }: ChooseDialogProps) {
  const [text, setText] = useState("");
  const [first] = useState(chosen);
  const found = [...new Set([...first, ...paths])].filter((path) => path.toLowerCase().includes(text.toLowerCase()));
  const toggle = (path: string) => { onChange(chosen.includes(path) ? chosen.filter((known) => known !== path) : [...chosen, path]); };
  return (
    <Confirm title={title} no="Close" onNo={onDone}>
      <p>{about}</p>
      <label className="choose-search">
        <span className="unseen">Find a {noun}</span>
        <input type="search" placeholder={`Find a ${noun}`} value={text} onChange={(event) => { setText(event.target.value); }} />
      </label>
      <ul className="choose-list" aria-label={title}>
        {found.slice(0, MOST_LISTED).map((path) => (
          <li key={path}>
            <label><input type="checkbox" checked={chosen.includes(path)} disabled={chosen.length >= most && !chosen.includes(path)} onChange={() => { toggle(path); }} /> <code>{path}</code></label>
          </li>
        ))}
      </ul>
      {chosen.length >= most && <p className="quiet">{most} are chosen: no more fit.</p>}
      {found.length === 0 && <p className="quiet">No {noun} has this in its name.</p>}
      {found.length > MOST_LISTED && <p className="quiet">and {found.length - MOST_LISTED} more: search for them</p>}
    </Confirm>
  );
}
