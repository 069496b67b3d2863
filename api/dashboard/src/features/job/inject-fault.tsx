/** The button that injects a fault into a job, with its dialog. It is there if the control plane allows fault injection. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { type FaultKind, injectFault } from "../../api/faults";
import { newKey } from "../../api/idempotency-key";
import type { Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { useServer } from "../../hooks/use-server";
import { FAULTS } from "../../model/faults";

export function InjectFault({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  if (!useServer()?.fault_injection) return null;
  return (
    <>
      <button className="button" onClick={() => { setOpen(true); }}>Inject a fault…</button>
      {open && <Dialog job={job} onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ job, onDone }: { job: Job; onDone: () => void }) {
  const client = useQueryClient();
  const [kind, setKind] = useState<FaultKind>("kill-rank");
  const [rank, setRank] = useState(0);
  const [key, setKey] = useState(() => newKey("fault"));
  const inject = useMutation({
    mutationFn: () => injectFault(job.id, kind, FAULTS[kind].ofRank ? rank : null, key),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  /** Another fault needs another idempotency key. */
  const change = (act: () => void) => () => {
    setKey(newKey("fault"));
    act();
  };
  return (
    <Confirm title={`Inject a fault into ${job.name}`} yes="Inject" no="Close" busy={inject.isPending} onYes={() => { inject.mutate(); }} onNo={onDone}>
      <div className="form">
        <label>
          Fault
          <select value={kind} onChange={(event) => { change(() => { setKind(event.target.value as FaultKind); })(); }}>
            {Object.keys(FAULTS).map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
        {FAULTS[kind].ofRank && (
          <label>
            Rank
            <input type="number" min={0} max={(job.worldSize ?? 1) - 1} value={rank} onChange={(event) => { change(() => { setRank(Number(event.target.value)); })(); }} />
          </label>
        )}
      </div>
      <p className="quiet">{FAULTS[kind].about} The history shows when it was injected.</p>
      {inject.error && <ProblemNotice problem={inject.error} />}
    </Confirm>
  );
}
