/** Memory and traffic of the ranks, measured in a probed step, beside the formula for the job's layout. */

import { useQuery } from "@tanstack/react-query";
import { getResources } from "../../api/resources";
import { untilRead } from "../../api/retrying";
import { ProblemNotice } from "../../components/problem-notice";
import { useOnceEnded } from "../../hooks/use-once-ended";
import { MemoryBars } from "./memory-bars";
import { TrafficTable } from "./traffic-table";
import "./job.css";

/** Probes are rare. */
const POLL_MS = 15_000;

export function JobResources({ id, ended }: { id: string; ended: boolean }) {
  const { data: found, error, refetch } = useQuery({
    queryKey: ["resources", id],
    queryFn: ({ signal }) => getResources(id, signal),
    refetchInterval: ended ? untilRead : POLL_MS,
  });
  useOnceEnded(ended, refetch);
  if (!found) return error && <ProblemNotice problem={error} />;
  const when = found.step === null ? "Not measured yet. Step 2 is the first step that is measured." : `Measured in step ${found.step}.`;
  return (
    <section className="job-resources card" aria-labelledby="resources-title">
      <div className="card-head">
        <h2 id="resources-title">Memory and traffic</h2>
        <span className="quiet">{when}</span>
      </div>
      {found.reason !== null && <p className="quiet job-resources-note">{found.reason}</p>}
      <h3>Memory of a rank</h3>
      {found.plannedByDryRun && <p className="quiet job-resources-note">Planned by the submitter's dry run of the module, not by formulas.</p>}
      {found.offPlan !== null && <p className="job-resources-note">{found.offPlan}</p>}
      <MemoryBars memory={found.memory} reason={found.reason} />
      <h3>Bytes that rank 0 sends in a step</h3>
      {found.traffic.length > 0 ? <TrafficTable traffic={found.traffic} /> : <p className="quiet job-resources-note">None. Ranks exchange nothing on this layout.</p>}
    </section>
  );
}
