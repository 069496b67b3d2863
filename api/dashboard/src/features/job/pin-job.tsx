/** The button that keeps a job, or no longer keeps it. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { editJob, type Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";

export function PinJob({ job }: { job: Job }) {
  const client = useQueryClient();
  const pin = useMutation({
    mutationFn: () => editJob(job.id, { pinned: !job.pinned }),
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  return (
    <>
      <button className="button" title="A pinned job cannot be deleted, and its records do not age." disabled={pin.isPending} onClick={() => { pin.mutate(); }}>
        {job.pinned ? "Unpin" : "Pin"}
      </button>
      {pin.error && <ProblemNotice problem={pin.error} />}
    </>
  );
}
