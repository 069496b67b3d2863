/** Names and values, in two columns. Values that are not there (null, false, empty text) are left out. */

import type { ReactNode } from "react";
import "./facts.css";

export interface Fact {
  name: string;
  value: ReactNode;
}

export function Facts({ title, facts }: { title: string; facts: readonly Fact[] }) {
  const known = facts.filter(({ value }) => value !== null && value !== "" && value !== false);
  return (
    <section className="facts card" aria-label={title}>
      <div className="card-head">
        <h2>{title}</h2>
      </div>
      <dl>
        {known.map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
