/** A job's logs: the newest lines, or the matches of a search, and the lines around a match. */

import { useMemo, useRef, useState } from "react";
import { isRetryable } from "../../api/http";
import type { Job } from "../../api/jobs";
import type { LogQuery } from "../../api/log-search";
import type { LogLine } from "../../api/logs";
import { ProblemNotice } from "../../components/problem-notice";
import { useAddressState } from "../../hooks/use-address-state";
import { useDebounced } from "../../hooks/use-debounced";
import { isFinal } from "../../model/jobs";
import * as search from "../../model/log-search";
import { LogFilter } from "./log-filter";
import { LogContext, LogHits } from "./log-hits";
import { LogTail } from "./log-tail";
import { LogTools } from "./log-tools";
import { useLogs } from "./use-logs";

export function JobLogs({ job }: { job: Job }) {
  // Its rank may be one that the job no longer has.
  const [{ wrap, ...query }, change] = useAddressState(search);
  const box = useRef<HTMLElement>(null);
  const [hit, jump] = useState<LogLine | null>(null);
  const worldSize = job.worldSize ?? 1;
  const settled = useDebounced(JSON.stringify(query));
  const settledQuery = useMemo(() => JSON.parse(settled) as LogQuery, [settled]);
  const width = query.rank === null ? String(Math.max(0, worldSize - 1)).length : 0;
  return (
    <section ref={box} className={wrap ? "log-tail card" : "log-tail unwrapped card"} aria-labelledby="logs-title">
      <div className="card-head log-head">
        <h2 id="logs-title">Logs</h2>
        <LogFilter query={query} worldSize={worldSize} onQuery={(changes) => { change(changes); jump(null); }} />
        <LogTools job={job} query={query} wrap={wrap} onWrap={(on) => { change({ wrap: on }); }} box={box} />
        {hit && <button className="button small" onClick={() => { jump(null); }}>Back to the results</button>}
        {search.isSearch(query) && !hit && <button className="button small" onClick={() => { change({ ...search.ALL, rank: query.rank, wrap }); }}>Follow the newest lines</button>}
      </div>
      {hit && <LogContext id={job.id} rank={query.rank} place={hit.position} width={width} />}
      {!hit && search.isSearch(settledQuery) && <LogHits id={job.id} query={settledQuery} width={width} onLine={jump} />}
      {!search.isSearch(settledQuery) && <Newest job={job} rank={query.rank} width={width} />}
    </section>
  );
}

function Newest({ job, rank, width }: { job: Job; rank: number | null; width: number }) {
  const ended = isFinal(job.state);
  const { lines, earlier, removed, problem, loading } = useLogs(job.id, rank, ended);
  const nothing = problem ? "" : loading ? "Loading…" : removed > 0 ? "No lines are left." : ended ? `${rank === null ? "This job" : `Rank ${rank}`} wrote no log lines.` : "No lines yet. They appear as the ranks write them.";
  return (
    <>
      {/* The job's own request reports an unreachable control plane; logs with lines do not repeat it. */}
      {problem && (lines.length === 0 || !isRetryable(problem)) && <ProblemNotice problem={problem} />}
      {earlier && <p className="log-found quiet">{lines.length === 1 ? "The newest line" : `The newest ${lines.length.toLocaleString("en-US")} lines`}. Search for older ones.</p>}
      {removed > 0 && <p className="log-found quiet">{removed === 1 ? "The first line of this job's log was" : `The first ${removed.toLocaleString("en-US")} lines of this job's log were`} removed by retention.</p>}
      <LogTail lines={lines} width={width} nothing={nothing} />
    </>
  );
}
