/** The cordons of the machines, newest first. */

import type { PastCordon } from "../../api/nodes";
import { TimeAgo } from "../../components/time-ago";

export interface CordonTableProps {
  cordons: readonly PastCordon[];
  /** Node → its host, of those that are still there. */
  hosts: ReadonlyMap<string, string>;
  now: Date;
}

export function CordonTable({ cordons, hosts, now }: CordonTableProps) {
  return (
    <section className="plain-table card after" aria-label="Cordons" tabIndex={0}>
      <div className="card-head"><h2>Cordons</h2></div>
      <table>
        <thead>
          <tr><th scope="col">Machine</th><th scope="col">Since</th><th scope="col">By</th><th scope="col">Reason</th><th scope="col">Until</th></tr>
        </thead>
        <tbody>
          {cordons.map((cordon) => (
            <tr key={`${cordon.node} ${cordon.since.toISOString()}`}>
              <th scope="row">{hosts.get(cordon.node) ?? <code>{cordon.node.slice(0, 12)}</code>}</th>
              <td><TimeAgo at={cordon.since} now={now} /></td>
              <td>{cordon.byHand ? cordon.actor : "automatic"}</td>
              <td>{cordon.message}</td>
              <td>{until(cordon, now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function until({ until: end, endedAt, endedBy }: PastCordon, now: Date): string {
  if (endedAt) return `lifted by ${endedBy ?? "unknown"}`;
  if (end === null) return "lifted by hand";
  return end <= now ? "expired" : end.toLocaleString();
}
