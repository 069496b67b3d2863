/** The choice of what the list of jobs is grouped by. */

import type { Job } from "../../api/jobs";
import { type Grouping, groupings, nameOf } from "../../model/job-groups";

interface GroupChoiceProps {
  jobs: readonly Job[];
  by: Grouping;
  onChange: (by: Grouping) => void;
}

export function GroupChoice({ jobs, by, onChange }: GroupChoiceProps) {
  return (
    <label>
      <span className="unseen">Groups</span>
      <select className="group-choice" value={by} onChange={(event) => { onChange(event.target.value); }}>
        <option value="">No groups</option>
        {groupings(jobs, by).map((each) => <option key={each} value={each}>Group {nameOf(each)}</option>)}
      </select>
    </label>
  );
}
