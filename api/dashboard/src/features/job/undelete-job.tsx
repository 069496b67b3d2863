/** The button that restores a deleted job. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { undeleteJob } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";

export function UndeleteJob({ id }: { id: string }) {
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => undeleteJob(id),
    onSuccess: () => client.invalidateQueries({ queryKey: ["job", id] }),
  });
  return (
    <>
      <button className="button primary after" disabled={change.isPending} onClick={() => { change.mutate(); }}>Undo</button>
      {change.error && <ProblemNotice problem={change.error} />}
    </>
  );
}
