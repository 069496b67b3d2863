/** A job's parent (the job whose checkpoint or spec it began with) and the differences of their specs. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { getJob, type Job } from "../../api/jobs";
import { SpecDiff } from "../../components/spec-diff";
import { jobAddress } from "../../model/addresses";
import { differences } from "../../model/runs";

export function JobParent({ job, parent }: { job: Job; parent: string }) {
  const query = useQuery({ queryKey: ["job", parent], queryFn: ({ signal }) => getJob(parent, signal), staleTime: Infinity });
  if (!query.data) return query.error ? <p className="card pad quiet">Its parent <code>{parent}</code> no longer exists.</p> : null;
  const names = [query.data.name === job.name ? `${job.name} (parent)` : query.data.name, job.name];
  return (
    <SpecDiff
      names={names}
      differences={differences([query.data.spec, job.spec])}
      title={<>Differences from its parent, <Link href={jobAddress(query.data.id)}>{query.data.name}</Link></>}
    />
  );
}
