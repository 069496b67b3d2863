/** The button that pauses a job, or resumes it. A training loses no step; a program may lose what it has not saved, so it is asked about. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { pauseJob, resumeJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { trains } from "../../model/checkpoints";
import { isFinal } from "../../model/jobs";

export function PauseJob({ job }: { job: Job }) {
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const paused = job.state === "paused";
  const change = useMutation({
    mutationFn: (act: typeof pauseJob) => act(job.id),
    onSettled: () => {
      setOpen(false);
      return client.invalidateQueries({ queryKey: ["job"] });
    },
  });
  if (isFinal(job.state) || ["stopping", "cancelling"].includes(job.state)) return null;
  const underWay = job.state === "pausing";
  const asks = !trains(job) && !paused && job.state !== "queued";
  return (
    <>
      <button className="button" disabled={underWay || change.isPending} onClick={() => { if (asks) setOpen(true); else change.mutate(paused ? resumeJob : pauseJob); }}>
        {underWay ? "Pausing…" : paused ? "Resume" : "Pause"}
      </button>
      {open && asks && (
        <Confirm title={`Pause ${job.name}?`} yes="Pause the job" no="Keep it running" harmless busy={change.isPending} onYes={() => { change.mutate(pauseJob); }} onNo={() => { setOpen(false); }}>
          <p>Its program gets SIGTERM, and has 30 seconds to save. When the job is resumed, the command starts again.</p>
        </Confirm>
      )}
      {change.error && <ProblemNotice problem={change.error} />}
    </>
  );
}
