/** The sources of a job's `files`, and what they had when the job first read them. */

import { useQuery } from "@tanstack/react-query";
import { getJobSources, type JobSource } from "../../api/job-sources";
import { Facts } from "../../components/facts";
import { bytes, integer } from "../../model/format";

export function JobSources({ id }: { id: string }) {
  const query = useQuery({ queryKey: ["job-sources", id], queryFn: ({ signal }) => getJobSources(id, signal) });
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
