/** Cancels several jobs after a confirmation. Jobs that cannot be cancelled are listed with the reason and stay selected. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Problem } from "../../api/http";
import { cancelJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { isFinal } from "../../model/jobs";

/** Requests at once, at most. */
const AT_ONCE = 4;

export function BulkCancel({ jobs, onDone }: { jobs: readonly Job[]; onDone: () => void }) {
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const running = jobs.filter((job) => !isFinal(job.state));
  const cancel = useMutation({
    mutationFn: () => cancelAll(running),
    onSuccess: () => { setOpen(false); onDone(); },
    onSettled: () => client.invalidateQueries({ queryKey: ["jobs"] }),
  });
  const many = running.length === 1 ? "1 job" : `${running.length} jobs`;
  return (
    <>
      <button className="button danger" disabled={running.length === 0} onClick={() => { setOpen(true); }}>Cancel {many}</button>
      {open && (
        <Confirm
          title={`Cancel ${many}?`}
          yes={`Cancel ${many}`}
          no="Keep them running"
          busy={cancel.isPending}
          onYes={() => { cancel.mutate(); }}
          onNo={() => { setOpen(false); cancel.reset(); }}
        >
          <ul className="bulk-names">{running.map((job) => <li key={job.id}>{job.name} <span className="quiet">{job.state}</span></li>)}</ul>
          <p>Their newest checkpoints are kept. A cancelled job cannot be restarted; a new job can resume from its checkpoint.</p>
          {cancel.error && <ProblemNotice problem={cancel.error} />}
        </Confirm>
      )}
    </>
  );
}

/** Raises one `Problem` that names every job that was not cancelled. */
async function cancelAll(jobs: readonly Job[]): Promise<void> {
  const waiting = [...jobs];
  const refused: { field: string; message: string; remedy: null }[] = [];
  const work = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const { name } = job;
      await cancelJob(job.id).catch((error: unknown) => { refused.push({ field: name, message: (error as Error).message, remedy: null }); });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (refused.length > 0) throw new Problem(409, "not_cancelled", `${refused.length} of ${jobs.length} jobs were not cancelled`, "", refused);
}
