/** A job's checkpoints, newest first, and what can be made out of each. */

import { Link } from "wouter";
import type { Checkpoint } from "../../api/checkpoints";
import type { Operation } from "../../api/operations";
import { TimeAgo } from "../../components/time-ago";
import { childAddress, modelAddress } from "../../model/addresses";
import { bytes, duration, integer } from "../../model/format";
import { ofCheckpoint } from "../../model/operations";
import { OperationState } from "./operation-state";
import "./job.css";

const STATES: Readonly<Record<Checkpoint["state"], string>> = {
  present: "Saved. No damage was found.",
  corrupt: "Files differ from what was saved. The checkpoint cannot be used.",
  deleted: "Deleted by a later save, to free space, or by hand. The checkpoint cannot be used.",
};

export interface CheckpointTableProps {
  job: string;
  checkpoints: readonly Checkpoint[];
  operations: readonly Operation[];
  now: Date;
  onVerify: (checkpoint: Checkpoint) => void;
  onFiles: (checkpoint: Checkpoint) => void;
  onName: (checkpoint: Checkpoint) => void;
  onPin: (checkpoint: Checkpoint) => void;
  /** null: they hold a program's own files, and cannot be exported. */
  onExport: ((checkpoint: Checkpoint) => void) | null;
}

export function CheckpointTable({ job, checkpoints, operations, now, ...actions }: CheckpointTableProps) {
  return (
    <table>
      <thead>
        <tr>
          <th scope="col" className="right">Step</th>
          <th scope="col">Saved</th>
          <th scope="col" className="right checkpoint-wide">Size</th>
          <th scope="col" className="right checkpoint-wide">Took</th>
          <th scope="col">State</th>
          <th scope="col"><span className="unseen">Actions</span></th>
        </tr>
      </thead>
      <tbody>
        {checkpoints.map((one) => (
          <tr key={one.position}>
            <th scope="row" className="right number" title={one.path}>{integer(one.step)}</th>
            <td><TimeAgo at={new Date(one.ts * 1000)} now={now} /></td>
            <td className="right number checkpoint-wide">{bytes(one.bytes)}</td>
            <td className="right number checkpoint-wide" title={one.held_s === null ? undefined : `training paused for ${duration(one.held_s)}`}>{duration(one.seconds)}</td>
            <td className={`checkpoint-state ${one.state}`} title={STATES[one.state]}>{one.state}{one.pinned && ", pinned"}<Named versions={one.models} /></td>
            <td className="right checkpoint-ways">
              {one.state === "present" && <Actions job={job} checkpoint={one} {...actions} />}
              {one.state !== "present" && one.pinned && one.models.length === 0 && <Pin checkpoint={one} onPin={actions.onPin} />}
              {ofCheckpoint(operations, one.path).map((each) => <OperationState key={each.id} operation={each} />)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

type ActionsProps = Pick<CheckpointTableProps, "job" | "onVerify" | "onFiles" | "onName" | "onPin" | "onExport"> & { checkpoint: Checkpoint };

function Actions({ job, checkpoint, onVerify, onFiles, onName, onPin, onExport }: ActionsProps) {
  const { step, pinned, models, path } = checkpoint;
  return (
    <>
      <Link className="button small" href={childAddress(job, path)}>Resume from here…{" "}<OfStep step={step} /></Link>{" "}
      <button className="button small" onClick={() => { onFiles(checkpoint); }}>Files{" "}<OfStep step={step} /></button>{" "}
      {(!pinned || models.length === 0) && <Pin checkpoint={checkpoint} onPin={onPin} />}{" "}
      <button className="button small" onClick={() => { onName(checkpoint); }}>Name…{" "}<OfStep step={step} /></button>{" "}
      <button className="button small" onClick={() => { onVerify(checkpoint); }}>Verify{" "}<OfStep step={step} /></button>{" "}
      {onExport && <button className="button small" onClick={() => { onExport(checkpoint); }}>Export…{" "}<OfStep step={step} /></button>}
    </>
  );
}

/** Also of a corrupt checkpoint, which takes space until it is unpinned. */
function Pin({ checkpoint, onPin }: Pick<ActionsProps, "checkpoint" | "onPin">) {
  return <button className="button small" onClick={() => { onPin(checkpoint); }}>{checkpoint.pinned ? "Unpin" : "Pin"}{" "}<OfStep step={checkpoint.step} /></button>;
}

/** Versions, as `NAME@NUMBER`. */
function Named({ versions }: { versions: readonly string[] }) {
  return versions.map((version) => <div key={version}><Link href={modelAddress(version.split("@")[0] ?? version)}>{version}</Link></div>);
}

/** The step, for screen readers, which read the buttons of all rows alike. */
function OfStep({ step }: { step: number }) {
  return <span className="unseen">step {step}</span>;
}
