/** The rungs of early stopping: how many trials reached each, how many continued, and the value that is needed to continue. */

import type { Sweep, Trial } from "../../api/sweeps";
import { integer, number } from "../../model/format";
import { rungsOf } from "../../model/sweeps";

export function RungTable({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const rungs = rungsOf(sweep, trials);
  if (rungs.length === 0) return null;
  return (
    <section className="plain-table card" aria-label="Rungs" tabIndex={0}>
      <div className="card-head"><h2>Rungs</h2></div>
      <table>
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col" className="right">Reached</th>
            <th scope="col" className="right">Continued</th>
            <th scope="col" className="right" title={`The worst ${sweep.metric} that is among the best 1/${sweep.asha?.reduction ?? 1} of the rung`}>Cut</th>
          </tr>
        </thead>
        <tbody className="number">
          {rungs.map(({ step, reached, continued, cut }) => (
            <tr key={step}>
              <th scope="row">{integer(step)}</th>
              <td className="right">{integer(reached)}</td>
              <td className="right">{integer(continued)}</td>
              <td className="right">{number(cut)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
