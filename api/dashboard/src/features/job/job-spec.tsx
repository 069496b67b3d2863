/** The tab Spec: what was submitted, how it differs from its parent's, and what its files' sources had. */

import type { Job } from "../../api/jobs";
import { JobParent } from "./job-parent";
import { JobSources } from "./job-sources";
import { SpecView } from "./spec-view";

export function JobSpec({ job }: { job: Job }) {
  return (
    <div className="stack">
      {job.parent && <JobParent job={job} parent={job.parent} />}
      {hasFiles(job.spec) && <JobSources id={job.id} />}
      <SpecView spec={job.spec} />
    </div>
  );
}

const hasFiles = (spec: unknown) =>
  typeof spec === "object" && spec !== null && "files" in spec && Object.keys(spec.files ?? {}).length > 0;
