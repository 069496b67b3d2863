/** The tab Queue: what waits, in its order and with the reasons, and what has devices. */

import { Link } from "wouter";
import { getQueue, listRunning, type QueuedJob, type RunningJob } from "../../api/cluster";
import { Empty } from "../../components/empty";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { useNow } from "../../hooks/use-now";
import { jobAddress } from "../../model/addresses";
import { duration, integer, moment, secondsBetween } from "../../model/format";
import { kindName } from "../../model/nodes";
import { Pages } from "./more";
import "./cluster.css";

export function ClusterQueue() {
  const now = useNow();
  return (
    <div className="stack">
      <Pages about={["queue"]} read={getQueue}>
        {(pages) => <Waiting jobs={pages.flatMap(({ items }) => items)} total={pages.at(-1)?.total ?? 0} now={now} />}
      </Pages>
      <Pages about={["running"]} read={listRunning}>{(pages) => <Running jobs={pages.flatMap(({ items }) => items)} now={now} />}</Pages>
    </div>
  );
}

/** The most that are counted. */
const MOST = 10_000;

function Waiting({ jobs, total, now }: { jobs: readonly QueuedJob[]; total: number; now: Date }) {
  if (jobs.length === 0) return <Empty title="No job waits"><p>Jobs that wait for devices appear here in the order in which they start, each with the reason why it waits.</p></Empty>;
  return (
    <section className="plain-table card" aria-label="Waiting" tabIndex={0}>
      <div className="card-head"><h2>Waiting</h2><span className="quiet number">{total >= MOST ? `${integer(total)} or more` : integer(total)}</span></div>
      <table>
        <thead>
          <tr><th scope="col" className="right">Place</th><th scope="col">Job</th><th scope="col">User</th><th scope="col" className="right">Needs</th><th scope="col">Waits because</th><th scope="col" className="right">For</th></tr>
        </thead>
        <tbody>
          {jobs.map(({ position, job, name, actor, device, ranks, spares, message, since, retryAt }) => (
            <tr key={job}>
              <td className="right number">{integer(position)}</td>
              <th scope="row"><Link href={jobAddress(job)}>{name}</Link></th>
              <td>{actor}</td>
              <td className="right number">{integer(ranks)}{spares > 0 && ` + ${spares}`} {device === "auto" ? "ranks" : kindName(device)}</td>
              <td>
                {message ?? "A dispatcher has not looked at it yet."}
                {retryAt !== null && retryAt > now && <> Next try at <time dateTime={retryAt.toISOString()}>{moment(retryAt, now)}</time>.</>}
              </td>
              <td className="right number">{duration(secondsBetween(since, now))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Running({ jobs, now }: { jobs: readonly RunningJob[]; now: Date }) {
  if (jobs.length === 0) return <Empty title="No job has devices"><p>Jobs that run appear here with their devices.</p></Empty>;
  return (
    <section className="plain-table card" aria-label="With devices" tabIndex={0}>
      <div className="card-head"><h2>With devices</h2></div>
      <table>
        <thead>
          <tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">User</th><th scope="col" className="right">Devices</th><th scope="col" className="right">Machines</th><th scope="col" className="right">Since</th></tr>
        </thead>
        <tbody>
          {jobs.map(({ job, name, state, actor, device, devices, nodes, since }) => (
            <tr key={job}>
              <th scope="row"><Link href={jobAddress(job)}>{name}</Link></th>
              <td><StateBadge state={state} /></td>
              <td>{actor}</td>
              <td className="right number">{integer(devices)} {device === null ? "" : kindName(device)}</td>
              <td className="right number">{nodes === 0 ? "–" : integer(nodes)}</td>
              <td className="right"><TimeAgo at={since} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
