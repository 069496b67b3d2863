/** The errors or warnings of a spec, by field and with a remedy; each leads to its line. */

import type { FieldError } from "../../api/http";
import "./new-job.css";

export interface FindingsProps {
  title: string;
  errors: readonly FieldError[];
  /** The job would run all the same. */
  harmless?: boolean;
  lineOf: (field: string) => number | null;
  onGo: (field: string) => void;
}

export function Findings({ title, errors, harmless = false, lineOf, onGo }: FindingsProps) {
  return (
    <section className={harmless ? "findings harmless card" : "findings card"} aria-label={harmless ? "Warnings" : "Errors"}>
      <div className="card-head"><h2>{title}</h2></div>
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
