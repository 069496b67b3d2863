/** The times of each rank by category, in numbers. */

import type { RankTime } from "../../api/traces";
import { CATEGORIES } from "../../model/lane";

const ms = (seconds: number | undefined) => (seconds ? (seconds * 1000).toFixed(1) : "–");

export function TraceTable({ ranks }: { ranks: readonly RankTime[] }) {
  const slowest = ranks.length > 1 ? Math.max(...ranks.map(({ compute }) => compute)) : null;
  const shown = CATEGORIES.filter(({ name }) => ranks.some(({ sums }) => sums[name]));
  return (
    <section className="plain-table" aria-label="Times by rank" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col" className="right">Step (ms)</th>
            <th scope="col" className="right">Compute time</th>
            <th scope="col" className="right">Wait time</th>
            {shown.map(({ name, label }) => <th key={name} scope="col" className="right">{label}</th>)}
          </tr>
        </thead>
        <tbody>
          {ranks.map((one) => (
            <tr key={one.rank}>
              <th scope="row">{one.rank}{one.compute === slowest ? " (slowest)" : ""}</th>
              <td className="right number">{ms(one.seconds)}</td>
              <td className="right number">{ms(one.compute)}</td>
              <td className="right number">{ms(one.wait)}</td>
              {shown.map(({ name }) => <td key={name} className="right number">{ms(one.sums[name])}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
