/** The tab History: who used how much device time, what ran, and what happened to the machines. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { type DeviceTime, listAttempts, listChanges, listDeviceTimes, type NodeChange, type PastAttempt } from "../../api/cluster";
import { Empty } from "../../components/empty";
import { ProblemNotice } from "../../components/problem-notice";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { useNodes } from "../../hooks/use-nodes";
import { useNow } from "../../hooks/use-now";
import { jobAddress } from "../../model/addresses";
import { duration, integer, number } from "../../model/format";
import { kindName } from "../../model/nodes";
import { RangeChoice, useClusterView } from "./cluster-range";
import { Pages } from "./more";
import "./cluster.css";

export function ClusterHistory() {
  const { range, node, change } = useClusterView();
  const now = useNow();
  const times = useQuery({ queryKey: ["device-times", range], queryFn: ({ signal }) => listDeviceTimes(range, signal), refetchInterval: 30_000 });
  return (
    <div className="stack">
      <div className="cluster-tools">
        <MachineChoice node={node} onChange={(chosen) => { change({ node: chosen }); }} />
        <RangeChoice range={range} change={change} />
      </div>
      {times.error && <ProblemNotice problem={times.error} stale={times.data !== undefined} />}
      {node === null && times.data && times.data.length > 0 && <Times times={times.data} />}
      <Pages about={["attempts", range, node]} read={(after, signal) => listAttempts(range, node, after, signal)}>
        {(pages) => <Attempts attempts={pages.flatMap(({ items }) => items)} now={now} />}
      </Pages>
      <Pages about={["changes", range, node]} read={(after, signal) => listChanges(range, node, after, signal)}>
        {(pages) => <Changes changes={pages.flatMap(({ items }) => items)} now={now} />}
      </Pages>
    </div>
  );
}

function MachineChoice({ node, onChange }: { node: string | null; onChange: (node: string | null) => void }) {
  const { data } = useNodes();
  const known = data ?? [];
  return (
    <label>
      <span className="unseen">Machine</span>
      <select value={node ?? ""} onChange={(event) => { onChange(event.target.value === "" ? null : event.target.value); }}>
        <option value="">All machines</option>
        {known.map(({ id, host }) => <option key={id} value={id}>{host}</option>)}
        {node !== null && !known.some(({ id }) => id === node) && <option value={node}>{node.slice(0, 12)}</option>}
      </select>
    </label>
  );
}

function Times({ times }: { times: readonly DeviceTime[] }) {
  return (
    <section className="plain-table card" aria-label="Device time by user" tabIndex={0}>
      <div className="card-head"><h2>Device time by user</h2></div>
      <table>
        <thead><tr><th scope="col">User</th><th scope="col">Devices</th><th scope="col" className="right">Jobs</th><th scope="col" className="right">Device time</th></tr></thead>
        <tbody>
          {times.map(({ actor, device, jobs, seconds }) => (
            <tr key={`${actor} ${device}`}>
              <th scope="row">{actor}</th>
              <td>{kindName(device)}</td>
              <td className="right number">{integer(jobs)}</td>
              <td className="right number">{duration(seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Attempts({ attempts, now }: { attempts: readonly PastAttempt[]; now: Date }) {
  if (attempts.length === 0) return <Empty title="No job ended in this range"><p>Jobs that have left their devices appear here with the device time that they took.</p></Empty>;
  return (
    <section className="plain-table card" aria-label="What ran" tabIndex={0}>
      <div className="card-head"><h2>What ran</h2></div>
      <table>
        <thead>
          <tr><th scope="col">Job</th><th scope="col">State now</th><th scope="col">User</th><th scope="col" className="right">Devices</th><th scope="col" className="right">Device time</th><th scope="col">Ended as</th><th scope="col" className="right">Ended</th></tr>
        </thead>
        <tbody>
          {attempts.map(({ job, name, attempt, state, actor, device, devices, seconds, outcome, until }) => (
            <tr key={`${job} ${attempt} ${until.getTime()}`}>
              <th scope="row"><Link href={jobAddress(job)}>{name}</Link>{attempt > 1 && <span className="quiet"> attempt {attempt}</span>}</th>
              <td><StateBadge state={state} /></td>
              <td>{actor}</td>
              <td className="right number">{number(devices)} {kindName(device)}</td>
              <td className="right number">{duration(seconds)}</td>
              <td>{outcome?.replaceAll("_", " ") ?? "–"}</td>
              <td className="right"><TimeAgo at={until} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const KINDS: Readonly<Record<NodeChange["kind"], string>> = {
  joined: "joined",
  lost: "lost",
  returned: "returned",
  cordoned: "cordoned",
  uncordoned: "cordon lifted",
  cordon_expired: "cordon expired",
};

function Changes({ changes, now }: { changes: readonly NodeChange[]; now: Date }) {
  if (changes.length === 0) return <Empty title="Nothing happened to the machines in this range"><p>Machines that join, are lost or return, and cordons, appear here.</p></Empty>;
  return (
    <section className="plain-table card" aria-label="Changes of machines" tabIndex={0}>
      <div className="card-head"><h2>Changes of machines</h2></div>
      <table>
        <thead><tr><th scope="col">Machine</th><th scope="col">Change</th><th scope="col">By</th><th scope="col">Reason</th><th scope="col" className="right">When</th></tr></thead>
        <tbody>
          {changes.map(({ node, host, kind, actor, message, at }) => (
            <tr key={`${node} ${kind} ${at.getTime()}`}>
              <th scope="row">{host === "" ? <code>{node.slice(0, 12)}</code> : host}</th>
              <td>{KINDS[kind]}</td>
              <td>{actor ?? "–"}</td>
              <td>{message}</td>
              <td className="right"><TimeAgo at={at} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
