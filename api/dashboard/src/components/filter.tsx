/** Which jobs are shown: by state, and by text in their name. */

import { STATES, type JobFilter } from "../services/jobs";
import "./filter.css";

export function Filter({ filter, onChange }: { filter: JobFilter; onChange: (filter: JobFilter) => void }) {
  return (
    <form className="filter" role="search" onSubmit={(event) => { event.preventDefault(); }}>
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
        <span className="unseen">Text</span>
        <input
          type="search"
          placeholder="Filter by text"
          value={filter.text}
          onChange={(event) => { onChange({ ...filter, text: event.target.value }); }}
        />
      </label>
    </form>
  );
}
