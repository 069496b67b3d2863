/** The buttons that cordon a machine and lift its cordon; both openDialog for confirmation. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cordonNode, liftCordon, type Node } from "../../api/nodes";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";

export function CordonNode({ node }: { node: Node }) {
  const [dialog, openDialog] = useState<"cordon" | "lift" | null>(null);
  const onDone = () => { openDialog(null); };
  return (
    <div>
      <button className="button small" onClick={() => { openDialog(node.cordon === null ? "cordon" : "lift"); }}>
        {node.cordon === null ? "Cordon…" : "Lift cordon…"} <span className="unseen">{node.host}</span>
      </button>
      {dialog === "cordon" && <Cordon node={node} onDone={onDone} />}
      {dialog === "lift" && <Lift node={node} onDone={onDone} />}
    </div>
  );
}

interface DialogProps {
  node: Node;
  onDone: () => void;
}

/** Sends the request, then fetches again what the page shows of it. */
function useNodeRequest(send: () => Promise<Node>, onDone: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: send,
    onSuccess: onDone,
    onSettled: () => Promise.all(["nodes", "cordons"].map((about) => client.invalidateQueries({ queryKey: [about] }))),
  });
}

/** Seconds by the names in the dialog; `TYPED` stands for the number in the field beside it. */
const DURATIONS: Readonly<Record<string, number | null>> = { "until lifted": null, "1 hour": 3600, "1 day": 86_400 };
const TYPED = "number of hours";

function Cordon({ node, onDone }: DialogProps) {
  const [duration, setDuration] = useState("until lifted");
  const [hours, setHours] = useState("8");
  const [reason, setReason] = useState("");
  const seconds = duration === TYPED ? Number(hours) * 3600 : (DURATIONS[duration] ?? null);
  const cordon = useNodeRequest(() => cordonNode(node.id, seconds, reason), onDone);
  return (
    <Confirm title={`Cordon ${node.host}?`} yes="Cordon" no="Leave it in use" harmless busy={cordon.isPending} onYes={() => { cordon.mutate(); }} onNo={onDone}>
      <p>No new gangs start on this machine. Jobs that run on it continue.</p>
      <div className="form">
        <label className="form-wide">
          Duration
          <select value={duration} onChange={(event) => { setDuration(event.target.value); }}>
            {[...Object.keys(DURATIONS), TYPED].map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
        {duration === TYPED && (
          <label>
            Hours
            <input type="number" min={0} step="any" value={hours} onChange={(event) => { setHours(event.target.value); }} />
          </label>
        )}
        <label className="form-wide">
          Reason (shown to others)
          <input maxLength={1000} value={reason} onChange={(event) => { setReason(event.target.value); }} />
        </label>
      </div>
      {cordon.error && <ProblemNotice problem={cordon.error} />}
    </Confirm>
  );
}

function Lift({ node, onDone }: DialogProps) {
  const lift = useNodeRequest(() => liftCordon(node.id), onDone);
  return (
    <Confirm title={`Lift the cordon of ${node.host}?`} yes="Lift the cordon" no="Keep it" harmless busy={lift.isPending} onYes={() => { lift.mutate(); }} onNo={onDone}>
      <p>New gangs can start on this machine again. Its recent faults no longer count.</p>
      {lift.error && <ProblemNotice problem={lift.error} />}
    </Confirm>
  );
}
