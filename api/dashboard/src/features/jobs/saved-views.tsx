/** The button and the dialog of the saved views of the list of jobs: filter, order and columns, as the address has them. */

import { type SyntheticEvent, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { Confirm } from "../../components/confirm";
import { useColumns } from "../../hooks/use-columns";
import { MOST_VIEWS, useViews } from "../../hooks/use-views";
import "./saved-views.css";

export function SavedViews() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button className="button" onClick={() => { setOpen(true); }}>Views…</button>
      {open && <Dialog onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ onDone }: { onDone: () => void }) {
  const [params] = useSearchParams();
  const { columns } = useColumns();
  const { views, save, remove } = useViews();
  const [name, setName] = useState("");
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    const query = new URLSearchParams(params);
    // The address has them only once they were chosen there, even if there are none; another day this browser may have had others last.
    query.set("columns", columns.join(","));
    save({ name: name.trim(), query: query.toString() });
    setName("");
  };
  return (
    <Confirm title="Views" no="Close" onNo={onDone}>
      {views.length === 0 && <p className="quiet">No views are saved in this browser.</p>}
      <ul className="saved-views" aria-label="Saved views">
        {views.map((view) => (
          <li key={view.name}>
            <Link href={`/?${view.query}`} onClick={onDone}>{view.name}</Link>
            <button className="button small" aria-label={`Remove the view ${view.name}`} onClick={() => { remove(view.name); }}>Remove</button>
          </li>
        ))}
      </ul>
      {views.length < MOST_VIEWS && (
        <form className="saved-views-new" onSubmit={submit}>
          <label>
            <span className="unseen">Name of the view</span>
            <input required maxLength={80} pattern=".*\S.*" placeholder="Name of the view" value={name} onChange={(event) => { setName(event.target.value); }} />
          </label>
          <button className="button" type="submit">Save this view</button>
        </form>
      )}
    </Confirm>
  );
}
