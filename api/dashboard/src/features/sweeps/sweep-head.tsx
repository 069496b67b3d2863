/** A sweep's name, its state, how far it is, what it compares, and the button that cancels it. */

import type { Sweep } from "../../api/sweeps";
import { StateBadge } from "../../components/state-badge";
import { endedTrials } from "../../model/sweeps";
import { CancelSweep } from "./cancel-sweep";
import { SweepProgress } from "./sweep-progress";
import "./sweeps.css";

export function SweepHead({ sweep }: { sweep: Sweep }) {
  return (
    <header className="sweep-head" data-state={sweep.state}>
      <h1 title={sweep.name}>{sweep.name}</h1>
      <StateBadge state={sweep.state} />
      <SweepProgress ended={endedTrials(sweep)} trials={sweep.trials} label="Trials that have ended" />
      <span className="quiet"><code>{sweep.metric}</code>, {sweep.goal === "minimize" ? "lower is better" : "higher is better"}</span>
      <div className="sweep-head-action"><CancelSweep sweep={sweep} /></div>
    </header>
  );
}
