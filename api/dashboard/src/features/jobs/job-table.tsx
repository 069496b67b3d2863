/** Jobs, one per row; the whole row leads to the job, the box at its start selects it. */

import { useState } from "react";
import { Link } from "wouter";
import { type Job, STATES } from "../../api/jobs";
import type { LossSparkline } from "../../api/sparklines";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { jobAddress } from "../../model/addresses";
import { integer, loss, short } from "../../model/format";
import { cellsOf, headOf, type Logged } from "../../model/job-columns";
import { type Grouping, type JobGroup, grouped } from "../../model/job-groups";
import { JobProgress } from "./job-progress";
import { Sparkline } from "./sparkline";
import "./job-table.css";

export interface JobTableProps {
  jobs: readonly Job[];
  now: Date;
  /** Job → its loss; of jobs that have none yet, nothing. */
  sparklines?: ReadonlyMap<string, LossSparkline> | undefined;
  /** Job → the values of logged metrics that are columns. */
  logged?: ReadonlyMap<string, Logged> | undefined;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
  /** Paths of further columns (`job-columns.ts`). */
  columns?: readonly string[] | undefined;
  /** The column by which the rows are ordered, `-` before it for the largest first. */
  by?: string | undefined;
  onOrder?: ((by: string) => void) | undefined;
  /** By what the rows are grouped; empty: by nothing. */
  group?: Grouping | undefined;
}

/** Columns that are always there. */
const FIXED = 9;

export function JobTable({ jobs, now, sparklines, logged, selected, onSelect, columns = [], by = "", onOrder, group = "" }: JobTableProps) {
  const [closed, close] = useState<ReadonlySet<string>>(new Set());
  const all = jobs.every((job) => selected.has(job.id));
  const selectAll = () => { onSelect(all ? new Set() : new Set(jobs.map((job) => job.id))); };
  const select = (id: string) => {
    const others = [...selected].filter((known) => known !== id);
    onSelect(new Set(selected.has(id) ? others : [...others, id]));
  };
  const rowsOf = (some: readonly Job[]) => some.map((job) => (
    <Row key={job.id} job={job} now={now} sparkline={sparklines?.get(job.id)} logged={logged?.get(job.id)} selected={selected.has(job.id)} onSelect={() => { select(job.id); }} columns={columns} />
  ));
  return (
    <div className="job-table card" role="region" aria-label="Jobs" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col" className="job-table-select"><input type="checkbox" aria-label="Select all jobs" checked={all} onChange={selectAll} /></th>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Layout</th>
            <th scope="col">Progress</th>
            <th scope="col" className="right" colSpan={2}>Loss</th>
            <th scope="col" className="right">Tokens/s</th>
            {columns.map((path) => <ColumnHead key={path} path={path} by={by} onOrder={onOrder} />)}
            <th scope="col" className="right">Created</th>
          </tr>
        </thead>
        {group === "" && <tbody>{rowsOf(jobs)}</tbody>}
        {group !== "" && grouped(jobs, group, STATES).map((each) => {
          const name = JSON.stringify([group, each.value]);
          const toggle = () => { close(closed.has(name) ? new Set([...closed].filter((one) => one !== name)) : new Set([...closed, name])); };
          return (
            <tbody key={name}>
              <GroupHead group={each} by={group} span={FIXED + columns.length} open={!closed.has(name)} onToggle={toggle} />
              {!closed.has(name) && rowsOf(each.jobs)}
            </tbody>
          );
        })}
      </table>
    </div>
  );
}

interface GroupHeadProps {
  group: JobGroup;
  by: Grouping;
  span: number;
  open: boolean;
  onToggle: () => void;
}

/** What a group's jobs have in common, and how many are loaded; it closes the group. */
function GroupHead({ group: { value, jobs }, by, span, open, onToggle }: GroupHeadProps) {
  const name = by === "state" && value !== null ? <StateBadge state={value} /> : value === null ? "without this label" : value === "" ? "empty" : value;
  return (
    <tr className="job-table-group">
      <th scope="rowgroup" colSpan={span}>
        <button aria-expanded={open} onClick={onToggle}>{name} <span className="quiet number">{integer(jobs.length)}</span></button>
      </th>
    </tr>
  );
}

/** Its button orders the rows by the column, first the smallest value, then the largest, then as they were. */
function ColumnHead({ path, by, onOrder }: { path: string; by: string; onOrder: ((by: string) => void) | undefined }) {
  const order = by === path ? "ascending" : by === `-${path}` ? "descending" : "none";
  const next = { none: path, ascending: `-${path}`, descending: "" }[order];
  return (
    <th scope="col" className="right" aria-sort={order} title={path}>
      <button className="job-table-order" onClick={() => onOrder?.(next)}>{headOf(path)}{{ none: "", ascending: " ↑", descending: " ↓" }[order]}</button>
    </th>
  );
}

interface RowProps {
  job: Job;
  now: Date;
  sparkline: LossSparkline | undefined;
  logged: Logged | undefined;
  selected: boolean;
  onSelect: () => void;
  columns: readonly string[];
}

function Row({ job, now, sparkline, logged, selected, onSelect, columns }: RowProps) {
  const cells = columns.length > 0 ? cellsOf(job, logged, now) : null;
  return (
    <tr data-state={job.state} data-selected={selected || undefined}>
      <td className="job-table-select"><input type="checkbox" aria-label={`Select ${job.name}`} checked={selected} onChange={onSelect} /></td>
      <th scope="row" className="job-table-name">
        <Link href={jobAddress(job.id)} data-listed>{job.name}</Link>
        {job.pinned && <span className="quiet"> pinned</span>}
        {job.deletedAt && <span className="quiet"> deleted <TimeAgo at={job.deletedAt} now={now} /> by {job.deletedBy}</span>}
      </th>
      <td className="job-table-state"><StateBadge state={job.state} /></td>
      <td className="job-table-layout quiet">{job.layout}</td>
      <td className="job-table-progress">
        <JobProgress progress={job.progress} label={`Progress of ${job.name}`} />
      </td>
      <td className="job-table-curve">{sparkline && <Sparkline curve={sparkline} name={job.name} />}</td>
      <td className="job-table-loss right number">{loss(job.progress?.loss ?? null)}</td>
      <td className="job-table-speed right number">{short(job.progress?.tokensPerSecond ?? null)}</td>
      {columns.map((path) => (
        <td key={path} className="job-table-chosen right number" data-head={headOf(path)}><span>{cells?.get(path) ?? "–"}</span></td>
      ))}
      <td className="job-table-created right quiet"><TimeAgo at={job.createdAt} now={now} /></td>
    </tr>
  );
}
