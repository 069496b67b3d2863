/** Which jobs are shown, and in which order: by state, by label, by text in their name, or those that are deleted. */

import { type JobFilter, STATES } from "../../api/jobs";
import { offered } from "../../model/job-orders";
import "./filter.css";

export function Filter({ filter, onChange }: { filter: JobFilter; onChange: (filter: JobFilter) => void }) {
  return (
    <form className="filter" role="search" onSubmit={(event) => { event.preventDefault(); }}>
      <label>
        <span className="unseen">Order</span>
        <select value={filter.sort} onChange={(event) => { onChange({ ...filter, sort: event.target.value }); }}>
          {offered(filter.sort).map(([sort, name]) => <option key={sort} value={sort}>{name}</option>)}
        </select>
      </label>
      <label>
        <span className="unseen">State</span>
        <select value={filter.state} onChange={(event) => { onChange({ ...filter, state: event.target.value }); }}>
          <option value="">All states</option>
          {STATES.map((state) => (
            <option key={state} value={state}>{state}</option>
          ))}
        </select>
      </label>
      <label>
        <span className="unseen">Label</span>
        <input
          className="filter-label"
          placeholder="label=value"
          value={filter.label}
          onChange={(event) => { onChange({ ...filter, label: event.target.value }); }}
        />
      </label>
      <label className="filter-text">
        <span className="unseen">Text</span>
        <input
          type="search"
          placeholder="Filter by text"
          value={filter.text}
          onChange={(event) => { onChange({ ...filter, text: event.target.value }); }}
        />
      </label>
      <label className="filter-deleted">
        <input type="checkbox" checked={filter.deleted === "true"} onChange={(event) => { onChange({ ...filter, deleted: event.target.checked ? "true" : "" }); }} />
        <span>Deleted</span>
      </label>
    </form>
  );
}
