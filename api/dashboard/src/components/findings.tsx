/** What is wrong with a spec, by field and with a remedy; each leads to its line. */

import type { FieldError, Problem } from "../services/http";
import "./findings.css";

export interface FindingsProps {
  problem: Problem;
  lineOf: (field: string) => number | null;
  onGo: (field: string) => void;
}

export function Findings({ problem, lineOf, onGo }: FindingsProps) {
  const errors = problem.errors.length > 0 ? problem.errors : [{ field: "", message: problem.detail, remedy: null }];
  return (
    <section className="findings card" aria-label="What is wrong">
      <div className="card-head"><h2>{problem.title}</h2></div>
      <ul>
        {errors.map((error) => <li key={`${error.field} ${error.message}`}><Finding error={error} line={lineOf(error.field)} onGo={onGo} /></li>)}
      </ul>
    </section>
  );
}

function Finding({ error, line, onGo }: { error: FieldError; line: number | null; onGo: (field: string) => void }) {
  return (
    <>
      {error.field !== "" && <code>{error.field}</code>}
      {line !== null && <button className="button small" onClick={() => { onGo(error.field); }}>Line {line}</button>}
      <p>{error.message}</p>
      {error.remedy !== null && <p className="quiet">{error.remedy}</p>}
    </>
  );
}
