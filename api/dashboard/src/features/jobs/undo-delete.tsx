/** Says which jobs were just deleted, and restores them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { undeleteJob, type Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { actOnAll } from "./bulk-actions";

export function UndoDelete({ jobs, onDone }: { jobs: readonly Job[]; onDone: () => void }) {
  const client = useQueryClient();
  const undo = useMutation({
    mutationFn: () => actOnAll(jobs, undeleteJob, "restored"),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["jobs"] }),
  });
  return (
    <div className="selection card" role="status">
      <span>{jobs.length === 1 ? `${jobs[0]?.name ?? "1 job"} was deleted.` : `${jobs.length} jobs were deleted.`}</span>
      <button className="button" disabled={undo.isPending} onClick={() => { undo.mutate(); }}>Undo</button>
      <button className="button" onClick={onDone}>Dismiss</button>
      {undo.error && <ProblemNotice problem={undo.error} />}
    </div>
  );
}
