/** The button that strikes a job with a fault, to see it survive: only where the control plane allows it, and after asking. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { injectFault, KINDS, type Kind } from "../../api/faults";
import type { Job } from "../../api/jobs";
import { newKey } from "../../api/idempotency-key";
import { getServer } from "../../api/server";
import "../../components/form.css";

export function InjectFault({ job }: { job: Job }) {
  const [asking, setAsking] = useState(false);
  const { data } = useQuery({ queryKey: ["server"], queryFn: ({ signal }) => getServer(signal), staleTime: Infinity });
  if (!data?.fault_injection) return null;
  return (
    <>
      <button className="button" onClick={() => { setAsking(true); }}>Inject a fault…</button>
      {asking && <Question job={job} onDone={() => { setAsking(false); }} />}
    </>
  );
}

function Question({ job, onDone }: { job: Job; onDone: () => void }) {
  const client = useQueryClient();
  const [kind, setKind] = useState<Kind>("kill-rank");
  const [rank, setRank] = useState(0);
  const [key, setKey] = useState(() => newKey("fault"));
  const strike = useMutation({
    mutationFn: () => injectFault(job.id, kind, rank, key),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  /** Another fault is another order. */
  const change = (act: () => void) => () => {
    setKey(newKey("fault"));
    act();
  };
  return (
    <Confirm title={`Strike ${job.name} with a fault?`} yes="Strike" no="Leave it alone" busy={strike.isPending} onYes={() => { strike.mutate(); }} onNo={onDone}>
      <div className="form">
        <label>
          Fault
          <select value={kind} onChange={(event) => { change(() => { setKind(event.target.value as Kind); })(); }}>
            {Object.keys(KINDS).map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
        {KINDS[kind].ofRank && (
          <label>
            Of rank
            <input type="number" min={0} max={(job.worldSize ?? 1) - 1} value={rank} onChange={(event) => { change(() => { setRank(Number(event.target.value)); })(); }} />
          </label>
        )}
      </div>
      <p className="quiet">{KINDS[kind].about} The timeline tells when it was done.</p>
      {strike.error && <ProblemNotice problem={strike.error} />}
    </Confirm>
  );
}
