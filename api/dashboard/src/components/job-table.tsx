/** Jobs, one per row; the whole row leads to the job. */

import { Link } from "wouter";
import { loss, short } from "../services/format";
import type { Job } from "../services/jobs";
import { JobProgress } from "./job-progress";
import { StateBadge } from "./state-badge";
import { TimeAgo } from "./time-ago";
import "./job-table.css";

export function JobTable({ jobs, now }: { jobs: readonly Job[]; now: Date }) {
  return (
    <div className="job-table card">
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Layout</th>
            <th scope="col">Progress</th>
            <th scope="col" className="right">Loss</th>
            <th scope="col" className="right">Tokens/s</th>
            <th scope="col" className="right">Created</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => <Row key={job.id} job={job} now={now} />)}
        </tbody>
      </table>
    </div>
  );
}

function Row({ job, now }: { job: Job; now: Date }) {
  return (
    <tr data-state={job.state}>
      <th scope="row" className="job-table-name">
        <Link href={`/jobs/${encodeURIComponent(job.id)}`}>{job.name}</Link>
      </th>
      <td className="job-table-state"><StateBadge state={job.state} /></td>
      <td className="job-table-layout quiet">{job.layout}</td>
      <td className="job-table-progress">
        <JobProgress progress={job.progress} label={`Progress of ${job.name}`} />
      </td>
      <td className="job-table-loss right number">{loss(job.progress?.loss ?? null)}</td>
      <td className="job-table-speed right number">{short(job.progress?.tokensPerSecond ?? null)}</td>
      <td className="job-table-created right quiet"><TimeAgo at={job.createdAt} now={now} /></td>
    </tr>
  );
}
