/** Sweeps, one per row: how far each is and the best of its trials. */

import { Link } from "wouter";
import type { Sweep } from "../../api/sweeps";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { sweepAddress } from "../../model/addresses";
import { duration, number } from "../../model/format";
import { endedTrials, shortNames, valueText } from "../../model/sweeps";
import { SweepProgress } from "./sweep-progress";
import "./sweeps.css";

export function SweepTable({ sweeps, now }: { sweeps: readonly Sweep[]; now: Date }) {
  return (
    <section className="sweep-table plain-table card" aria-label="Sweeps" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Trials ended</th>
            <th scope="col">Best</th>
            <th scope="col">Parameters of the best</th>
            <th scope="col" className="right">Device time</th>
            <th scope="col" className="right">Created</th>
          </tr>
        </thead>
        <tbody>{sweeps.map((sweep) => <Row key={sweep.id} sweep={sweep} now={now} />)}</tbody>
      </table>
    </section>
  );
}

function Row({ sweep, now }: { sweep: Sweep; now: Date }) {
  const { best, metric } = sweep;
  return (
    <tr data-state={sweep.state}>
      <th scope="row"><Link href={sweepAddress(sweep.id)}>{sweep.name}</Link></th>
      <td><StateBadge state={sweep.state} /></td>
      <td><SweepProgress ended={endedTrials(sweep)} trials={sweep.trials} label={`Trials of ${sweep.name} that have ended`} /></td>
      <td className="number">{best === null ? "–" : <><span className="quiet">{metric}</span> {number(best.value)}</>}</td>
      <td className="sweep-parameters">{best === null ? "–" : <Parameters values={best.parameters ?? {}} />}</td>
      <td className="right number">{duration(sweep.deviceSeconds)}</td>
      <td className="right quiet"><TimeAgo at={sweep.createdAt} now={now} /></td>
    </tr>
  );
}

function Parameters({ values }: { values: Readonly<Record<string, unknown>> }) {
  const names = shortNames(Object.keys(values));
  return Object.entries(values).map(([path, value]) => <code key={path} title={path} className="label">{names.get(path)}={valueText(value)}</code>);
}
