/**
 * `/new`: the form for a new job's spec. `/new?from=JOB&checkpoint=PATH` starts with that job's spec, as it was submitted, and resumes
 * from the checkpoint; without a checkpoint it begins where that job began.
 */

import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";
import { getJob, type Job } from "../api/jobs";
import { listTemplates } from "../api/templates";
import { ProblemNotice } from "../components/problem-notice";
import { firstText } from "../features/new-job/first-text";
import { SpecForm } from "../features/new-job/spec-form";
import { useTitle } from "../hooks/use-title";
import { jobAddress } from "../model/addresses";

export function NewJobPage() {
  useTitle("New job");
  const [params] = useSearchParams();
  const parent = params.get("from");
  return <main className="page">{parent === null ? <Blank /> : <Child id={parent} checkpoint={params.get("checkpoint")} />}</main>;
}

function Blank() {
  const templates = useTemplates();
  return (
    <>
      {templates.error && <ProblemNotice problem={templates.error} />}
      {templates.data ? <SpecForm templates={templates.data} first={templates.data[0]?.text ?? ""} /> : <h1>New job</h1>}
    </>
  );
}

function Child({ id, checkpoint }: { id: string; checkpoint: string | null }) {
  const templates = useTemplates();
  const parent = useQuery({ queryKey: ["job", id], queryFn: ({ signal }) => getJob(id, signal), staleTime: Infinity });
  const first = useQuery({
    queryKey: ["first-text", id, checkpoint],
    queryFn: ({ signal }) => (parent.data ? firstText(parent.data, checkpoint, signal) : ""),
    // The same while the form is open. Another visit reads it again: the parent may have another layout by then.
    staleTime: Infinity,
    gcTime: 0,
    enabled: parent.isSuccess,
  });
  const problem = parent.error ?? templates.error ?? first.error;
  if (!parent.data || !templates.data || first.data === undefined) return <>{problem ? <ProblemNotice problem={problem} /> : <h1>New job</h1>}</>;
  return (
    <SpecForm
      key={`${id} ${checkpoint ?? ""}`}
      templates={templates.data}
      first={first.data}
      of={`${id}.${checkpoint ?? ""}`}
      note={<Origin parent={parent.data} checkpoint={checkpoint} />}
    />
  );
}

function Origin({ parent, checkpoint }: { parent: Job; checkpoint: string | null }) {
  return (
    <p className="origin quiet">
      {checkpoint === null ? "The spec of " : "Resumes from "}
      {checkpoint !== null && <><code>{checkpoint.split("/").at(-1)}</code> of </>}
      <Link href={jobAddress(parent.id)}>{parent.name}</Link>
      {checkpoint === null ? ". Change it as needed." : ". You can change train.layout: a checkpoint loads on any layout. Steps are counted from the start of that job."}
    </p>
  );
}

const useTemplates = () => useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => listTemplates(signal), staleTime: Infinity });
