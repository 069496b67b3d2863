/** The compared runs: the legend of the charts, and the state of each. */

import { Link } from "wouter";
import type { Job } from "../../api/jobs";
import type { Run } from "../../api/runs";
import { StateBadge } from "../../components/state-badge";
import { jobAddress } from "../../model/addresses";
import { duration, integer, loss, secondsBetween, short } from "../../model/format";
import "./compare.css";

export interface RunTableProps {
  /** `colour`: a colour of the theme, without its dashes. */
  runs: readonly (Run & { colour: string })[];
  onRemove: (id: string) => void;
}

export function RunTable({ runs, onRemove }: RunTableProps) {
  return (
    <section className="plain-table run-table card" aria-label="Runs" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Layout</th>
            <th scope="col" className="right">Step</th>
            <th scope="col" className="right">Loss</th>
            <th scope="col" className="right">Validation</th>
            <th scope="col" className="right">Tokens/s</th>
            <th scope="col" className="right">Took</th>
            <th scope="col"><span className="unseen">Remove</span></th>
          </tr>
        </thead>
        <tbody>
          {runs.map(({ job, validations, colour }) => <Row key={job.id} job={job} validation={validations.at(-1)?.loss ?? null} colour={colour} onRemove={onRemove} />)}
        </tbody>
      </table>
    </section>
  );
}

function Row({ job, validation, colour, onRemove }: { job: Job; validation: number | null; colour: string; onRemove: (id: string) => void }) {
  const { progress } = job;
  return (
    <tr>
      <th scope="row"><span className={`swatch swatch-${colour}`} /><Link href={jobAddress(job.id)}>{job.name}</Link></th>
      <td><StateBadge state={job.state} /></td>
      <td className="quiet">{job.layout}</td>
      <td className="right number">{integer(progress?.step ?? null)}</td>
      <td className="right number">{loss(progress?.loss ?? null)}</td>
      <td className="right number">{loss(validation)}</td>
      <td className="right number">{short(progress?.tokensPerSecond ?? null)}</td>
      <td className="right number">{duration(secondsBetween(job.startedAt, job.finishedAt))}</td>
      <td className="right"><button className="button small" aria-label={`Remove ${job.name}`} onClick={() => { onRemove(job.id); }}>Remove</button></td>
    </tr>
  );
}
