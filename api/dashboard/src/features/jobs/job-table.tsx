/** Jobs, one per row; the whole row leads to the job, the box at its start selects it. */

import { Link } from "wouter";
import type { Job } from "../../api/jobs";
import type { LossSparkline } from "../../api/sparklines";
import { StateBadge } from "../../components/state-badge";
import { TimeAgo } from "../../components/time-ago";
import { jobAddress } from "../../model/addresses";
import { loss, short } from "../../model/format";
import { JobProgress } from "./job-progress";
import { Sparkline } from "./sparkline";
import "./job-table.css";

export interface JobTableProps {
  jobs: readonly Job[];
  now: Date;
  /** Job → its loss; of jobs that have none yet, nothing. */
  sparklines?: ReadonlyMap<string, LossSparkline> | undefined;
  selected: ReadonlySet<string>;
  onSelect: (selected: ReadonlySet<string>) => void;
}

export function JobTable({ jobs, now, sparklines, selected, onSelect }: JobTableProps) {
  const all = jobs.every((job) => selected.has(job.id));
  const selectAll = () => { onSelect(all ? new Set() : new Set(jobs.map((job) => job.id))); };
  const select = (id: string) => {
    const others = [...selected].filter((known) => known !== id);
    onSelect(new Set(selected.has(id) ? others : [...others, id]));
  };
  return (
    <div className="job-table card">
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
            <th scope="col" className="right">Created</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <Row key={job.id} job={job} now={now} sparkline={sparklines?.get(job.id)} selected={selected.has(job.id)} onSelect={() => { select(job.id); }} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  job: Job;
  now: Date;
  sparkline: LossSparkline | undefined;
  selected: boolean;
  onSelect: () => void;
}

function Row({ job, now, sparkline, selected, onSelect }: RowProps) {
  return (
    <tr data-state={job.state} data-selected={selected || undefined}>
      <td className="job-table-select"><input type="checkbox" aria-label={`Select ${job.name}`} checked={selected} onChange={onSelect} /></td>
      <th scope="row" className="job-table-name">
        <Link href={jobAddress(job.id)}>{job.name}</Link>
      </th>
      <td className="job-table-state"><StateBadge state={job.state} /></td>
      <td className="job-table-layout quiet">{job.layout}</td>
      <td className="job-table-progress">
        <JobProgress progress={job.progress} label={`Progress of ${job.name}`} />
      </td>
      <td className="job-table-curve">{sparkline && <Sparkline curve={sparkline} name={job.name} />}</td>
      <td className="job-table-loss right number">{loss(job.progress?.loss ?? null)}</td>
      <td className="job-table-speed right number">{short(job.progress?.tokensPerSecond ?? null)}</td>
      <td className="job-table-created right quiet"><TimeAgo at={job.createdAt} now={now} /></td>
    </tr>
  );
}
