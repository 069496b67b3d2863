/** A job's incidents, newest first, a page at a time. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { listIncidents } from "../../api/incidents";
import type { Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { isFinal } from "../../model/jobs";
import { BudgetBars } from "./budget-bars";
import { IncidentCard } from "./incident-card";

/** An incident may carry the stacks of hundreds of ranks. */
const AT_ONCE = 5;

export function JobIncidents({ job }: { job: Job }) {
  const query = useInfiniteQuery({
    queryKey: ["incidents", job.id],
    queryFn: ({ pageParam, signal }) => listIncidents(job.id, pageParam, AT_ONCE, signal),
    initialPageParam: null as number | null,
    getNextPageParam: ({ next }) => next,
  });
  const incidents = query.data?.pages.flatMap((page) => page.incidents) ?? [];
  return (
    <section className="card" aria-labelledby="incidents-title">
      <div className="card-head">
        <h2 id="incidents-title">Incidents</h2>
        <BudgetBars budgets={job.budgets} />
      </div>
      {query.error && <ProblemNotice problem={query.error} />}
      {query.data && incidents.length === 0 && <p className="pad quiet">{isFinal(job.state) ? "No incidents are stored." : "No incidents."}</p>}
      {incidents.map((incident) => <IncidentCard key={incident.position} incident={incident} />)}
      {query.hasNextPage && (
        <div className="pad">
          <button className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Earlier incidents</button>
        </div>
      )}
    </section>
  );
}
