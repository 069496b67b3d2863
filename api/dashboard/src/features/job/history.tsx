/** A job's history, newest first: its states, checkpoints, incidents and repairs. */

import type { ReactNode } from "react";
import type { Entry } from "../../api/events";
import { StateBadge } from "../../components/state-badge";
import { bytes, duration, integer, moment } from "../../model/format";
import "./history.css";

export interface HistoryProps {
  /** Oldest first. */
  entries: readonly Entry[];
  /** When the last of an older part was; null: these are the newest. */
  until?: Date | null;
  /** What leads to other parts. */
  children?: ReactNode;
}

export function History({ entries, until = null, children }: HistoryProps) {
  return (
    <section className="history card" aria-labelledby="history-title">
      <div className="card-head">
        <h2 id="history-title">History</h2>
        <span role="status" className="quiet number">{until && `until ${until.toLocaleString()}`}</span>
      </div>
      {entries.length === 0 && <p className="quiet pad">No recent events.</p>}
      <ol key={until?.getTime()} tabIndex={0} aria-labelledby="history-title">
        {entries.toReversed().map((entry) => (
          <li key={entry.id} className={`history-${entry.kind}`}>
            <time dateTime={entry.at.toISOString()} title={entry.at.toLocaleString()}>{moment(entry.at)}</time>
            <div><What entry={entry} /></div>
          </li>
        ))}
      </ol>
      {children}
    </section>
  );
}

function What({ entry }: { entry: Entry }) {
  switch (entry.kind) {
    case "state":
      return (
        <>
          <StateBadge state={entry.state} /> {entry.reason && <span className="quiet">{entry.reason}</span>}
          {entry.message && <p className="history-message">{firstLine(entry.message)}</p>}
        </>
      );
    case "checkpoint":
      return (
        <>
          <strong>Checkpoint</strong> at step {integer(entry.step)}
          <span className="quiet"> · {bytes(entry.bytes)}, {duration(entry.seconds)}</span>
        </>
      );
    case "repair":
      return (
        <>
          <strong>Repaired</strong> as generation {integer(entry.generation)}
          <span className="quiet"> · {entry.cause}, {duration(entry.seconds)}, resumed at step {integer(entry.step)}</span>
        </>
      );
    case "reshard":
      return (
        <>
          <strong>Layout changed</strong> {entry.after}
          <p className="history-message">before: {entry.before}</p>
        </>
      );
    case "fault":
      return (
        <>
          <strong>Fault injection</strong> {entry.fault}
          {entry.rank !== null && <span className="quiet"> · rank {entry.rank}</span>}
          <p className="history-message">{entry.done ? "injected" : "not injected"}: {entry.message}</p>
        </>
      );
    case "incident":
      return (
        <>
          <strong className="bad">Incident</strong> {entry.cause}
          {entry.rank !== null && <span className="quiet"> · rank {entry.rank}</span>}
          {entry.node && <span className="quiet"> · <code title={entry.node}>{entry.node.slice(0, 12)}</code></span>}
          {entry.message && <p className="history-message">{firstLine(entry.message)}</p>}
          {entry.traceback && (
            <details>
              <summary>Traceback</summary>
              <pre>{entry.traceback}</pre>
            </details>
          )}
        </>
      );
  }
}

const firstLine = (text: string) => text.split("\n", 1)[0] ?? "";
