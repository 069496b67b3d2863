/** The button that ends a job, after a confirmation. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { isFinal } from "../../model/jobs";

export function CancelJob({ job }: { job: Job }) {
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const cancel = useMutation({
    mutationFn: () => cancelJob(job.id),
    onSuccess: () => { setOpen(false); },
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  if (isFinal(job.state)) return null;
  const underWay = job.state === "cancelling" || cancel.isSuccess;
  return (
    <>
      <button className="button danger" disabled={underWay} onClick={() => { setOpen(true); }}>
        {underWay ? "Cancelling…" : "Cancel job"}
      </button>
      {open && (
        <Confirm
          title={`Cancel ${job.name}?`}
          yes="Cancel the job"
          no="Keep it running"
          busy={cancel.isPending}
          onYes={() => { cancel.mutate(); }}
          onNo={() => { setOpen(false); }}
        >
          <p>
            Its ranks stop within seconds. {job.checkpoint ? "Its newest checkpoint is kept." : "It has no checkpoint yet."} A
            cancelled job can be retried: a new job then resumes from its checkpoint.
          </p>
          {cancel.error && <ProblemNotice problem={cancel.error} />}
        </Confirm>
      )}
    </>
  );
}
