/** An error and its remedy: a refusal with its fields, or a control plane that does not answer. */

import { Problem } from "../api/http";
import "./problem-notice.css";

/** `stale`: the page keeps what it shows, and the notice lies above it. */
export function ProblemNotice({ problem, stale = false }: { problem: Error; stale?: boolean }) {
  const known = problem instanceof Problem ? problem : null;
  return (
    <div className={stale ? "problem-notice above" : "problem-notice"} role="alert">
      <strong>{known?.title ?? "Something went wrong on this page"}</strong>
      {(known?.detail ?? problem.message) !== "" && <p>{known?.detail ?? problem.message}</p>}
      {known !== null && known.errors.length > 0 && (
        <ul>
          {known.errors.map((error) => (
            <li key={`${error.field} ${error.message}`}>
              {error.field !== "" && <code>{error.field}</code>} {error.message} {error.remedy}
            </li>
          ))}
        </ul>
      )}
      {stale && <p className="quiet">The page shows the last known state.</p>}
    </div>
  );
}
