/** The sources of a job's `files`, and what they had when the job first read them. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getJobSources, type JobSource } from "../../api/job-sources";
import { Facts } from "../../components/facts";
import { ProblemNotice } from "../../components/problem-notice";
import { bytes, integer } from "../../model/format";

/** `state`: the job's. It reads its sources before it runs, so they are asked for again when the state changes. */
export function JobSources({ id, state }: { id: string; state: string }) {
  const query = useQuery({
    queryKey: ["job-sources", id, state],
    queryFn: ({ signal }) => getJobSources(id, signal),
    placeholderData: keepPreviousData,
  });
  if (query.error) return <ProblemNotice problem={query.error} />;
  if (!query.data?.length) return null;
  return <Facts title="Files" facts={query.data.map((one) => ({ name: one.target, value: <Source of={one} /> }))} />;
}

function Source({ of }: { of: JobSource }) {
  const count = of.files === null ? "a path that all nodes see" : `${integer(of.files)} file${of.files === 1 ? "" : "s"}, ${bytes(of.bytes)}`;
  return (
    <>
      <code>{of.source}</code> {count}
      {of.revision !== null && <>, commit <code>{of.revision}</code></>}
      {of.digest !== null && <>, digest <code>{of.digest}</code></>}
    </>
  );
}
