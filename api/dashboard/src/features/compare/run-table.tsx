/** The compared runs: the legend of the charts, the choice of the baseline, and the chosen metrics with their differences to it. */

import type { ReactNode } from "react";
import { Link } from "wouter";
import { StateBadge } from "../../components/state-badge";
import { jobAddress } from "../../model/addresses";
import { duration, integer, secondsBetween } from "../../model/format";
import { deltaText, formatOf, headOf, type ResultKind, resultOf, type RunResults } from "../../model/results";
import type { ComparedRun } from "./use-comparison";
import "./compare.css";

export interface RunTableProps {
  runs: readonly ComparedRun[];
  /** What the table has of each run. */
  results: readonly RunResults[];
  /** Paths of metrics. */
  columns: readonly string[];
  kind: ResultKind;
  /** The baseline's place among the runs. */
  base: number;
  onBase: (id: string) => void;
  onRemove: (id: string) => void;
}

export function RunTable({ runs, results, columns, kind, base, onBase, onRemove }: RunTableProps) {
  const valuesOf = (path: string) => results.map((one) => resultOf(one, path)[kind]);
  const values = columns.map((path) => ({ path, values: valuesOf(path) }));
  return (
    <section className="plain-table run-table card" aria-label="Runs" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Baseline</th>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Layout</th>
            <th scope="col" className="right">Step</th>
            <th scope="col" className="right">Took</th>
            {columns.map((path) => <th key={path} scope="col" className="right" title={path}>{headOf(path)}</th>)}
            <th scope="col"><span className="unseen">Remove</span></th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run, at) => (
            <Row key={run.job.id} run={run} isBase={at === base} onBase={onBase} onRemove={onRemove}>
              {values.map(({ path, values: all }) => (
                <td key={path} className="right number">
                  {formatOf(path)(all[at] ?? null)}
                  {at !== base && <span className="run-delta quiet">{deltaText(all[at] ?? null, all[base] ?? null)}</span>}
                </td>
              ))}
            </Row>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface RowProps {
  run: ComparedRun;
  isBase: boolean;
  onBase: (id: string) => void;
  onRemove: (id: string) => void;
  children: ReactNode;
}

function Row({ run: { job, label, colour }, isBase, onBase, onRemove, children }: RowProps) {
  return (
    <tr>
      <td><input type="radio" name="baseline" aria-label={`Baseline ${label}`} checked={isBase} onChange={() => { onBase(job.id); }} /></td>
      <th scope="row"><span className={`swatch swatch-${colour}`} /><Link href={jobAddress(job.id)}>{label}</Link></th>
      <td><StateBadge state={job.state} /></td>
      <td className="quiet">{job.layout}</td>
      <td className="right number">{integer(job.progress?.step ?? null)}</td>
      <td className="right number">{duration(secondsBetween(job.startedAt, job.finishedAt))}</td>
      {children}
      <td className="right"><button className="button small" aria-label={`Remove ${label}`} onClick={() => { onRemove(job.id); }}>Remove</button></td>
    </tr>
  );
}
