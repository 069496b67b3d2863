/** A job's parent (the job whose checkpoint or spec it began with) and the differences of their specs. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { Problem } from "../../api/http";
import { getJob, type Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { SpecDiff } from "../../components/spec-diff";
import { jobAddress } from "../../model/addresses";
import { differences } from "../../model/runs";

export function JobParent({ job, parent }: { job: Job; parent: string }) {
  const query = useQuery({ queryKey: ["job", parent], queryFn: ({ signal }) => getJob(parent, signal), staleTime: Infinity });
  if (!query.data) return query.error ? <Missing parent={parent} problem={query.error} /> : null;
  const names = [query.data.name === job.name ? `${job.name} (parent)` : query.data.name, job.name];
  return (
    <SpecDiff
      names={names}
      differences={differences([query.data.spec, job.spec])}
      title={<>Differences from its parent, <Link href={jobAddress(query.data.id)}>{query.data.name}</Link></>}
    />
  );
}

/** A deleted parent has a page, which may restore it. */
function Missing({ parent, problem }: { parent: string; problem: Error }) {
  const status = problem instanceof Problem ? problem.status : 0;
  if (status === 404) return <p className="card pad quiet">Its parent <code>{parent}</code> no longer exists.</p>;
  if (status === 410) return <p className="card pad quiet">Its parent <Link href={jobAddress(parent)}>{parent}</Link> was deleted.</p>;
  return <ProblemNotice problem={problem} />;
}
