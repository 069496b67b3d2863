/** The button that restores a deleted job. `id`: its id, or its name. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { deletedId, undeleteJob } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";

export function UndeleteJob({ id }: { id: string }) {
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: async () => undeleteJob(await deletedId(id)),
    onSuccess: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  return (
    <>
      <button className="button primary after" disabled={change.isPending} onClick={() => { change.mutate(); }}>Undo</button>
      {change.error && <ProblemNotice problem={change.error} />}
    </>
  );
}
