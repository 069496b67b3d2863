/** Steps done of all steps. */

import type { Progress } from "../../api/jobs";
import { integer } from "../../model/format";
import "./jobs.css";

export function JobProgress({ progress, label }: { progress: Progress | null; label: string }) {
  if (progress === null) return <span className="quiet">–</span>;
  return (
    <span className="job-progress">
      <progress aria-label={label} max={progress.steps} value={progress.step} />
      <span className="number">
        {integer(progress.step)}<span className="quiet"> / {integer(progress.steps)}</span>
      </span>
    </span>
  );
}
