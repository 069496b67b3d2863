/** How much of each budget of a job is used. A budget of 0 that is not used is left out. */

import type { Budget } from "../../api/jobs";
import "./job.css";

export function BudgetBars({ budgets }: { budgets: readonly Budget[] }) {
  const known = budgets.filter(({ used, limit }) => used > 0 || limit > 0);
  return (
    <ul className="budget-bars" aria-label="Budgets">
      {known.map(({ name, about, used, limit }) => (
        <li key={name} title={about}>
          <span>{name}</span>
          <meter aria-label={name} min={0} max={Math.max(limit, used, 1)} high={Math.max(limit, 1) * 0.75} optimum={0} value={used} />
          <span className="number quiet">{used} of {limit}</span>
        </li>
      ))}
    </ul>
  );
}
