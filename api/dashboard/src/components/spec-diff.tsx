/** The fields in which specs differ, side by side. */

import type { ReactNode } from "react";
import type { Difference } from "../model/runs";

export interface SpecDiffProps {
  names: readonly string[];
  differences: readonly Difference[];
  title?: ReactNode;
}

export function SpecDiff({ names, differences, title = "Differences of the specs" }: SpecDiffProps) {
  return (
    <section className="plain-table card" aria-label="Differences of the specs" tabIndex={0}>
      <div className="card-head"><h2>{title}</h2></div>
      {differences.length === 0 && <p className="pad quiet">The specs are the same.</p>}
      {differences.length > 0 && (
        <table>
          <thead>
            <tr><th scope="col">Field</th>{names.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {differences.map(({ field, values }) => (
              <tr key={field}>
                <th scope="row"><code>{field}</code></th>
                {values.map((value, index) => <td key={names[index]}>{value === null ? <span className="quiet">–</span> : <code>{value}</code>}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
