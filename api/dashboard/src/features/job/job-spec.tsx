/** The tab Spec: what was submitted, what it was resolved to, and how that differs from its parent's. */

import { useQuery } from "@tanstack/react-query";
import type { Job } from "../../api/jobs";
import { getSubmittedSpec } from "../../api/submitted-spec";
import { ProblemNotice } from "../../components/problem-notice";
import { JobParent } from "./job-parent";
import { SpecView } from "./spec-view";

export function JobSpec({ job }: { job: Job }) {
  const submitted = useQuery({ queryKey: ["submitted-spec", job.id], queryFn: ({ signal }) => getSubmittedSpec(job.id, signal) });
  return (
    <div className="stack">
      {submitted.error && <ProblemNotice problem={submitted.error} />}
      {job.parent && <JobParent job={job} parent={job.parent} />}
      {!submitted.isLoading && <SpecView spec={job.spec} submitted={submitted.data ?? null} />}
    </div>
  );
}
