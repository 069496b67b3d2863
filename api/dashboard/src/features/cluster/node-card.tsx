/** One machine: its condition, its devices, the jobs that use them, and its cordon. */

import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Cordon, DeviceCapacity, Node, NodeUse } from "../../api/nodes";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { jobAddress } from "../../model/addresses";
import { bytes } from "../../model/format";
import { inUse, kindName } from "../../model/nodes";
import "./cluster.css";

export function NodeCard({ node, now, action }: { node: Node; now: Date; action: ReactNode }) {
  return (
    <article className="node-card card" aria-label={node.host}>
      <header>
        <h2 title={node.host}>{node.host}</h2>
        <Condition node={node} />
      </header>
      {node.cordon && <Why cordon={node.cordon} inUse={node.inUse} />}
      {node.alive && node.devices.map((devices) => <Bar key={devices.kind} devices={devices} />)}
      {node.alive && node.use && <Use use={node.use} />}
      {node.alive && <Holders node={node} />}
      <p className="quiet number">
        <code title={node.id}>{node.id.slice(0, 12)}</code>
        {node.cluster !== null && ` · cluster ${node.cluster}`}
        {node.memoryBytes > 0 && ` · ${bytes(node.memoryBytes)}`}
        {node.faults > 0 && ` · ${node.faults} ${node.faults === 1 ? "recent fault" : "recent faults"}`}
        {!node.alive && node.seenAt && <> · last seen <TimeAgo at={node.seenAt} now={now} /></>}
      </p>
      {action}
    </article>
  );
}

function Condition({ node }: { node: Node }) {
  const word = !node.alive ? "lost" : node.cordon === null ? "in use" : node.inUse ? "cordoned, in use" : "cordoned";
  const tone = !node.alive ? "bad" : node.cordon === null ? "good" : "warn";
  return <span className={`state-badge still tone-${tone}`}>{word}</span>;
}

function Why({ cordon, inUse }: { cordon: Cordon; inUse: boolean }) {
  return (
    <p className="node-card-why">
      Cordoned {cordon.byHand ? `by ${cordon.actor}` : "because of its faults"}{" "}
      {cordon.until === null ? "until lifted" : <>until <time dateTime={cordon.until.toISOString()}>{cordon.until.toLocaleString()}</time></>}
      {cordon.message !== "" && `: ${cordon.message}`}
      {inUse && " (It stays in use: no other machine has its kind of device.)"}
    </p>
  );
}

function Bar({ devices }: { devices: DeviceCapacity }) {
  const { kind, all, free } = devices;
  const name = kindName(kind);
  return (
    <div className="node-card-devices">
      <span>{name}</span>
      <div className="meter" role="meter" aria-label={`${name} in use`} aria-valuemin={0} aria-valuemax={all} aria-valuenow={all - free}>
        <div style={{ width: `${((all - free) / all) * 100}%` }} />
      </div>
      <span className="number">{inUse(devices)} in use</span>
    </div>
  );
}

/** What all processes of the machine use now. */
function Use({ use }: { use: NodeUse }) {
  const total = (use.memoryUsed ?? 0) + (use.memoryAvailable ?? 0);
  return (
    <>
      <Share name="CPU" percent={use.cpu} />
      <Share name="Memory" percent={total > 0 ? (100 * (use.memoryUsed ?? 0)) / total : null} />
      <Share name="Disk" percent={use.diskFull} />
      {use.receive !== null && use.send !== null && <p className="quiet number">Network: {bytes(use.receive)}/s in, {bytes(use.send)}/s out</p>}
    </>
  );
}

function Share({ name, percent }: { name: string; percent: number | null }) {
  if (percent === null) return null;
  const shown = Math.round(Math.min(100, percent));
  return (
    <div className="node-card-devices">
      <span>{name}</span>
      <div className="meter" role="meter" aria-label={`${name} used`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={shown}>
        <div style={{ width: `${shown}%` }} />
      </div>
      <span className="number">{shown} % used</span>
    </div>
  );
}

function Holders({ node: { held, heldMore } }: { node: Node }) {
  if (held.length === 0) return <p className="quiet">No jobs.</p>;
  return (
    <ul className="node-card-holders" aria-label="Jobs on it">
      {held.map(({ job, name, state, ranks, range }) => (
        <li key={job}>
          <Link href={jobAddress(job)}>{name}</Link>
          <StateBadge state={state} />
          <span className="quiet number">
            {ranks} {ranks === 1 ? "rank" : "ranks"}{range && ` · elastic, ${range[0]} to ${range[1]} ranks`}
          </span>
        </li>
      ))}
      {heldMore > 0 && <li className="quiet">and {heldMore} more</li>}
    </ul>
  );
}
