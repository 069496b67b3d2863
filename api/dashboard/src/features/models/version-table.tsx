/** Versions of a model, newest first: where each comes from, its numbers, and what can be done with it. */

import { Link } from "wouter";
import type { Version } from "../../api/models";
import { TimeAgo } from "../../components/time-ago";
import { jobAddress } from "../../model/addresses";
import { integer, number } from "../../model/format";

/** Metrics that are shown; the others are in the title. */
const SHOWN = 3;

export interface VersionTableProps {
  versions: readonly Version[];
  now: Date;
  onAlias: (version: Version) => void;
  onDelete: (version: Version) => void;
}

export function VersionTable({ versions, now, onAlias, onDelete }: VersionTableProps) {
  return (
    <section className="plain-table card" aria-label="Versions" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col" className="right">Version</th>
            <th scope="col">Aliases</th>
            <th scope="col">From</th>
            <th scope="col">State</th>
            <th scope="col">Metrics</th>
            <th scope="col">Notes</th>
            <th scope="col">Created</th>
            <th scope="col"><span className="unseen">Actions</span></th>
          </tr>
        </thead>
        <tbody>
          {versions.map((one) => (
            <tr key={one.number}>
              <th scope="row" className="right number">{one.number}</th>
              <td>{one.aliases.map((alias) => <code key={alias} className="label">{alias}</code>)}</td>
              <td><Source version={one} /></td>
              <td title={one.digest ?? undefined}>{stateOf(one)}</td>
              <td title={metricsOf(one, Infinity)}>{metricsOf(one, SHOWN)}</td>
              <td className="version-notes">{one.notes}</td>
              <td><TimeAgo at={one.createdAt} now={now} /> by {one.actor}</td>
              <td className="right">
                <button className="button small" onClick={() => { onAlias(one); }}>Set alias… <span className="unseen">version {one.number}</span></button>{" "}
                <button className="button small" onClick={() => { onDelete(one); }}>Delete… <span className="unseen">version {one.number}</span></button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Source({ version: { job, step, artifact } }: { version: Version }) {
  const tab = artifact === null ? "checkpoints" : "files";
  return <>{artifact !== null && <><code>{artifact}</code> of </>}<Link href={jobAddress(job, tab)}>{job}</Link>{step !== null && `, step ${integer(step)}`}</>;
}

const stateOf = ({ state, pinned }: Version) => (state === "present" && !pinned ? "present, not pinned yet" : state);

function metricsOf({ metrics }: Version, most: number): string {
  const known = Object.entries(metrics).flatMap(([name, value]) => (value === null ? [] : [`${name} ${number(value)}`]));
  return known.slice(0, most).join(", ") + (known.length > most ? ", …" : "");
}
