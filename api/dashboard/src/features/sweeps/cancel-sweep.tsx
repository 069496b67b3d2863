/** The button that cancels a sweep with all its trials, after a confirmation. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelSweep, type Sweep } from "../../api/sweeps";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { endedTrials, hasEnded } from "../../model/sweeps";

export function CancelSweep({ sweep }: { sweep: Sweep }) {
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const cancel = useMutation({
    mutationFn: () => cancelSweep(sweep.id),
    onSuccess: () => { setOpen(false); },
    onSettled: () => client.invalidateQueries({ queryKey: ["sweep"] }),
  });
  if (hasEnded(sweep.state)) return null;
  const underWay = sweep.state === "cancelling" || cancel.isSuccess;
  const left = sweep.trials - endedTrials(sweep);
  return (
    <>
      <button className="button danger" disabled={underWay} onClick={() => { setOpen(true); }}>{underWay ? "Cancelling…" : "Cancel sweep"}</button>
      {open && (
        <Confirm title={`Cancel ${sweep.name}?`} yes="Cancel the sweep" no="Keep it running" busy={cancel.isPending} onYes={() => { cancel.mutate(); }} onNo={() => { setOpen(false); }}>
          <p>{left === 1 ? "The trial that has not ended is cancelled." : `The ${left} trials that have not ended are cancelled.`} A cancelled sweep cannot be continued. Checkpoints are kept.</p>
          {cancel.error && <ProblemNotice problem={cancel.error} />}
        </Confirm>
      )}
    </>
  );
}
