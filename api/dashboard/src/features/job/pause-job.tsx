/** The button that pauses a job, or resumes it. Neither loses a step, so neither asks for a confirmation. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { pauseJob, resumeJob, type Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { isFinal } from "../../model/jobs";

export function PauseJob({ job }: { job: Job }) {
  const client = useQueryClient();
  const paused = job.state === "paused";
  const change = useMutation({
    mutationFn: () => (paused ? resumeJob(job.id) : pauseJob(job.id)),
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  if (isFinal(job.state) || job.state === "cancelling") return null;
  const underWay = job.state === "pausing";
  return (
    <>
      <button className="button" disabled={underWay || change.isPending} onClick={() => { change.mutate(); }}>
        {underWay ? "Pausing…" : paused ? "Resume" : "Pause"}
      </button>
      {change.error && <ProblemNotice problem={change.error} />}
    </>
  );
}
