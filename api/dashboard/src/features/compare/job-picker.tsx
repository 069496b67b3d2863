/** Finds a job by a part of its name or id, and hands it on. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { listJobs, NO_FILTER } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { useDebounced } from "../../hooks/use-debounced";
import { useNow } from "../../hooks/use-now";
import "./compare.css";

/** Jobs that are offered, at most. */
const OFFERED = 8;

export function JobPicker({ without, onPick }: { without: readonly string[]; onPick: (id: string) => void }) {
  const [text, setText] = useState("");
  const now = useNow();
  const settled = useDebounced(text);
  const { data, error } = useQuery({
    queryKey: ["jobs", "picker", settled],
    queryFn: ({ signal }) => listJobs({ ...NO_FILTER, text: settled }, null, signal, OFFERED + without.length),
    placeholderData: (before) => before,
  });
  const found = (data?.jobs ?? []).filter((job) => !without.includes(job.id)).slice(0, OFFERED);
  return (
    <section className="job-picker card before" aria-label="Add a job">
      <form role="search" aria-label="Jobs to add" onSubmit={(event) => { event.preventDefault(); }}>
        <label>
          <span className="unseen">Search for a job to add</span>
          <input type="search" placeholder="Add a job by name or id" value={text} onChange={(event) => { setText(event.target.value); }} />
        </label>
      </form>
      {error && <ProblemNotice problem={error} />}
      {data && found.length === 0 && <p className="quiet">No {without.length > 0 && "other "}job matches.</p>}
      <ul>
        {found.map((job) => (
          <li key={job.id}>
            <button className="button" onClick={() => { onPick(job.id); }}>
              <span className="unseen">Add</span> <span className="job-picker-name">{job.name}</span> <StateBadge state={job.state} />{" "}
              <span className="quiet"><TimeAgo at={job.createdAt} now={now} /></span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
