/** The trials of a sweep, a page of them at a time, in the order of any column, which is in the address. */

import { useMemo, useState } from "react";
import { Link, useSearchParams } from "wouter";
import type { Sweep, Trial } from "../../api/sweeps";
import { StateBadge } from "../../components/state-badge";
import { jobAddress } from "../../model/addresses";
import { duration, integer, number } from "../../model/format";
import { orderedTrials, shortNames, valueText } from "../../model/sweeps";
import "./sweeps.css";

/** Rows in the page at once. */
const ROWS = 50;

export interface TrialTableProps {
  sweep: Sweep;
  trials: readonly Trial[];
  /** Number of all trials, of which `trials` may be a part. */
  of: number;
  /** Called with the trial under the pointer or the focus. */
  onPoint: (number: number | null) => void;
}

export function TrialTable({ sweep, trials, of, onPoint }: TrialTableProps) {
  const [by, order] = useOrder();
  const [wanted, turn] = useState(0);
  const pages = Math.max(1, Math.ceil(trials.length / ROWS));
  const page = Math.min(wanted, pages - 1);
  const ordered = useMemo(() => orderedTrials(trials, by), [trials, by]);
  const rows = ordered.slice(page * ROWS, (page + 1) * ROWS);
  const names = shortNames(sweep.parameters.map(({ path }) => path));
  const columns = [
    { id: "number", head: "Trial" },
    { id: "state", head: "State" },
    { id: "step", head: "Step", right: true },
    { id: "value", head: sweep.metric, right: true },
    ...sweep.parameters.map(({ path }) => ({ id: path, head: names.get(path) ?? path, title: path, right: true })),
    ...(sweep.asha ? [{ id: "rungs", head: "Rungs", right: true }] : []),
    { id: "device", head: "Device time", right: true },
  ];
  return (
    <section className="trial-table card" aria-label="Trials">
      <div className="card-head">
        <h2>Trials</h2>
        {trials.length < of && <span className="quiet">{integer(trials.length)} of {integer(of)} pass the brushes</span>}
        {pages > 1 && <Pages page={page} pages={pages} onPage={turn} />}
      </div>
      <div className="plain-table" role="region" aria-label="Table of trials" tabIndex={0} onPointerLeave={() => { onPoint(null); }}>
        <table>
          <thead>
            <tr>{columns.map((column) => <Head key={column.id} {...column} by={by} onOrder={(next) => { order(next); turn(0); }} />)}</tr>
          </thead>
          <tbody>{rows.map((trial) => <Row key={trial.number} sweep={sweep} trial={trial} onPoint={onPoint} />)}</tbody>
        </table>
      </div>
    </section>
  );
}

/** By number if the address has no other column. */
function useOrder(): [string, (by: string) => void] {
  const [params, setParams] = useSearchParams();
  const order = (by: string) => {
    setParams((known) => {
      const next = new URLSearchParams(known);
      if (by === "number") next.delete("by");
      else next.set("by", by);
      return next;
    }, { replace: true });
  };
  return [params.get("by") ?? "number", order];
}

function Pages({ page, pages, onPage }: { page: number; pages: number; onPage: (page: number) => void }) {
  return (
    <nav className="trial-table-pages" aria-label="Pages of trials">
      <button className="button small" disabled={page === 0} onClick={() => { onPage(page - 1); }}>Previous</button>
      <span className="quiet number">{page + 1} of {pages}</span>
      <button className="button small" disabled={page === pages - 1} onClick={() => { onPage(page + 1); }}>Next</button>
    </nav>
  );
}

interface HeadProps {
  id: string;
  head: string;
  title?: string;
  right?: boolean;
  by: string;
  onOrder: (by: string) => void;
}

/** Its button orders the rows by the column: first the smallest value, then the largest, then by number. */
function Head({ id, head, title, right = false, by, onOrder }: HeadProps) {
  const order = by === id ? "ascending" : by === `-${id}` ? "descending" : "none";
  const next = { none: id, ascending: `-${id}`, descending: "number" }[order];
  return (
    <th scope="col" className={right ? "right" : undefined} aria-sort={order} title={title}>
      <button className="trial-table-order" onClick={() => { onOrder(next); }}>{head}{{ none: "", ascending: " ↑", descending: " ↓" }[order]}</button>
    </th>
  );
}

function Row({ sweep, trial, onPoint }: { sweep: Sweep; trial: Trial; onPoint: (number: number | null) => void }) {
  const point = () => { onPoint(trial.number); };
  return (
    <tr data-state={trial.state} onPointerEnter={point} onFocus={point} onBlur={() => { onPoint(null); }}>
      <th scope="row" className="number">
        {trial.job !== null && trial.jobState !== null ? <Link href={jobAddress(trial.job)}>{trial.number}</Link> : trial.number}
        {trial.number === sweep.best?.number && <span className="trial-table-best"> best</span>}
      </th>
      <td>
        <StateBadge state={trial.state === "active" ? (trial.jobState ?? "active") : trial.state} />
        {trial.message !== null && trial.message !== "" && <p className="trial-table-message" title={trial.message}>{trial.message}</p>}
      </td>
      <td className="right number">{integer(trial.step)}</td>
      <td className="right number">{number(trial.value)}</td>
      {sweep.parameters.map(({ path }) => <td key={path} className="trial-table-value right number" title={trial.parameters ? valueText(trial.parameters[path]) : undefined}>{valueText(trial.parameters?.[path])}</td>)}
      {sweep.asha && <td className="right number" title={trial.rungs.map(number).join(", ")}>{trial.rungs.length} of {sweep.rungs.length}</td>}
      <td className="right number">{duration(trial.deviceSeconds)}</td>
    </tr>
  );
}
