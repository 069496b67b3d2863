/** The button that deletes a job that has ended, after a confirmation. The page then offers to restore it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { deleteJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { Removal } from "../../components/removal";
import { isFinal } from "../../model/jobs";

export function DeleteJob({ job }: { job: Job }) {
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const change = useMutation({
    mutationFn: () => deleteJob(job.id),
    onSuccess: () => {
      setOpen(false);
      return client.invalidateQueries({ queryKey: ["job"] });
    },
  });
  if (!isFinal(job.state) || job.pinned) return null;
  return (
    <>
      <button className="button danger" onClick={() => { setOpen(true); }}>Delete</button>
      {open && (
        <Confirm title={`Delete ${job.name}?`} yes="Delete the job" no="Keep it" busy={change.isPending} onYes={() => { change.mutate(); }} onNo={() => { setOpen(false); change.reset(); }}>
          <Removal />
          {change.error && <ProblemNotice problem={change.error} />}
        </Confirm>
      )}
    </>
  );
}
