/** Trials that have ended, of all. */

import { integer } from "../../model/format";
import "./sweeps.css";

export function SweepProgress({ ended, trials, label }: { ended: number; trials: number; label: string }) {
  return (
    <span className="sweep-progress">
      <progress aria-label={label} max={Math.max(1, trials)} value={ended} />
      <span className="number">{integer(ended)}<span className="quiet"> / {integer(trials)}</span></span>
    </span>
  );
}
