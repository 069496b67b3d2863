/** The tab Spec: what was submitted and resolved to, how that differs from its parent's, and what its files' sources had. */

import { useQuery } from "@tanstack/react-query";
import type { Job } from "../../api/jobs";
import { getSubmittedSpec } from "../../api/submitted-spec";
import { ProblemNotice } from "../../components/problem-notice";
import { JobParent } from "./job-parent";
import { JobSources } from "./job-sources";
import { SpecView } from "./spec-view";

export function JobSpec({ job }: { job: Job }) {
  // The answer says whether the layout was changed, which may happen while this tab is open.
  const submitted = useQuery({
    queryKey: ["submitted-spec", job.id, job.layout],
    queryFn: ({ signal }) => getSubmittedSpec(job.id, signal),
    placeholderData: (before) => before,
  });
  return (
    <div className="stack">
      {submitted.error && <ProblemNotice problem={submitted.error} />}
      {job.parent && <JobParent job={job} parent={job.parent} />}
      {hasFiles(job.spec) && <JobSources id={job.id} state={job.state} />}
      {!submitted.isLoading && <SpecView spec={job.spec} submitted={submitted.data?.spec ?? null} />}
    </div>
  );
}

const hasFiles = (spec: unknown) =>
  typeof spec === "object" && spec !== null && "files" in spec && Object.keys(spec.files ?? {}).length > 0;
