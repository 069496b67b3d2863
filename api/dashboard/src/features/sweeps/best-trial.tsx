/** The best trial: its value, its parameters to copy, and a link to its job. */

import { Link } from "wouter";
import type { Sweep, Trial } from "../../api/sweeps";
import { CopyButton } from "../../components/copyable-text";
import { jobAddress } from "../../model/addresses";
import { number } from "../../model/format";
import { parameterLines } from "../../model/sweeps";
import "./sweeps.css";

export function BestTrial({ sweep, best }: { sweep: Sweep; best: Trial }) {
  const text = parameterLines(best.parameters);
  return (
    <section className="best-trial card" aria-label="Best trial">
      <div className="card-head">
        <h2>Best trial</h2>
        <CopyButton text={text} label="Copy parameters" />
      </div>
      <p>
        <span className="quiet">{sweep.metric}</span> <strong className="number">{number(best.value)}</strong>
        <span className="quiet"> · trial {best.number}{best.state !== "succeeded" && ", which has not run to its end"}</span>
      </p>
      <pre tabIndex={0} aria-label="Parameters of the best trial">{text}</pre>
      {best.job !== null && best.jobState !== null && <p><Link href={jobAddress(best.job)}>Its job</Link></p>}
    </section>
  );
}
