/** What a job's ranks wrote: its newest lines as they come, or those that are searched for, and each of these among its neighbours. */

import { useMemo, useState } from "react";
import { LogFilter } from "./log-filter";
import { LogTail } from "./log-tail";
import { ProblemNotice } from "../../components/problem-notice";
import { Problem } from "../../api/http";
import { isFinal, type Job } from "../../api/jobs";
import { isSearch, type Wanted } from "../../api/log-search";
import { KEEP, type LogLine } from "../../api/logs";
import { LogContext, LogHits } from "./log-hits";
import { useLogAddress } from "../../hooks/use-log-address";
import { useLogs } from "./use-logs";
import { useSettled } from "../../hooks/use-debounced";

const ALL: Wanted = { text: "", level: "", rank: null, since: null, until: null };

/** A control plane that is away is said once, by the job itself. */
const isPassing = (problem: Error) => problem instanceof Problem && problem.passing;

export function JobLogs({ job }: { job: Job }) {
  const [wanted, want] = useState(ALL);
  const [hit, jump] = useState<LogLine | null>(null);
  useLogAddress((rank) => { want({ ...ALL, rank }); jump(null); });
  const settled = useSettled(JSON.stringify(wanted));
  const asked = useMemo(() => JSON.parse(settled) as Wanted, [settled]);
  const worldSize = job.worldSize ?? 1;
  const width = wanted.rank === null ? String(Math.max(0, worldSize - 1)).length : 0;
  return (
    <section className="log-tail card" aria-labelledby="logs-title">
      <div className="card-head log-head">
        <h2 id="logs-title">Logs</h2>
        <LogFilter wanted={wanted} worldSize={worldSize} onWanted={(changes) => { want({ ...wanted, ...changes }); jump(null); }} />
        {hit && <button className="button small" onClick={() => { jump(null); }}>Back to what was found</button>}
        {isSearch(wanted) && !hit && <button className="button small" onClick={() => { want({ ...ALL, rank: wanted.rank }); }}>Follow the newest lines</button>}
      </div>
      {hit && <LogContext id={job.id} rank={wanted.rank} place={hit.n} width={width} />}
      {!hit && isSearch(asked) && <LogHits id={job.id} wanted={asked} width={width} onLine={jump} />}
      {!isSearch(asked) && <Newest job={job} rank={wanted.rank} width={width} />}
    </section>
  );
}

function Newest({ job, rank, width }: { job: Job; rank: number | null; width: number }) {
  const ended = isFinal(job.state);
  const { lines, problem, loading } = useLogs(job.id, rank, ended);
  const nothing = loading ? "Loading…" : ended ? "This job wrote nothing." : "Nothing yet: lines appear as the ranks write them.";
  return (
    <>
      {problem && !isPassing(problem) && <ProblemNotice problem={problem} />}
      {lines.length >= KEEP && <p className="log-found quiet">The newest {KEEP.toLocaleString("en-US")} lines; search for what is older.</p>}
      <LogTail lines={lines} width={width} nothing={nothing} />
    </>
  );
}
