/** The tab Spec: what was submitted, and how it differs from its parent's. */

import type { Job } from "../../api/jobs";
import { JobParent } from "./job-parent";
import { SpecView } from "./spec-view";

export function JobSpec({ job }: { job: Job }) {
  return (
    <div className="stack">
      {job.parent && <JobParent job={job} parent={job.parent} />}
      <SpecView spec={job.spec} />
    </div>
  );
}
