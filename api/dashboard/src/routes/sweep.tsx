/** `/sweeps/:id`: one sweep with its trials. It is read again every two seconds until it has ended. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, memo, useDeferredValue, useEffect, useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { isRefused } from "../api/http";
import { untilRead } from "../api/retrying";
import { getSweep, listTrials, type Sweep, type Trial, type TrialList } from "../api/sweeps";
import { LoadedPart } from "../components/loaded-part";
import { ProblemNotice } from "../components/problem-notice";
import { BestTrial } from "../features/sweeps/best-trial";
import { ParallelCoordinates } from "../features/sweeps/parallel-coordinates";
import { RungTable } from "../features/sweeps/rung-table";
import { SweepFacts } from "../features/sweeps/sweep-facts";
import { SweepHead } from "../features/sweeps/sweep-head";
import { TrialTable } from "../features/sweeps/trial-table";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import { sweepAddress } from "../model/addresses";
import { axesOf, type Brushes, brushed } from "../model/parallel-axes";
import { hasEnded } from "../model/sweeps";

const BestChart = lazy(async () => ({ default: (await import("../features/sweeps/best-chart")).BestChart }));

const POLL_MS = 2000;

/** `id`: of a sweep, or a name of which the newest is meant. */
export function SweepPage({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ["sweep", id],
    queryFn: ({ signal }) => getSweep(id, signal),
    refetchInterval: (query) => ((query.state.data && hasEnded(query.state.data.state)) || isRefused(query.state.error) ? untilRead(query) : POLL_MS),
  });
  const sweep = query.data?.id === id ? query.data : undefined;
  useIdInAddress(id, query.data);
  useTitle(sweep ? `${sweep.name} · ${sweep.state}` : "Sweep");
  return (
    <main className="page">
      <nav aria-label="Breadcrumb" className="breadcrumb">
        <Link href="/sweeps">Sweeps</Link> <span aria-hidden="true">/</span> {sweep?.name ?? id}
      </nav>
      {!sweep && <h1 className="before">{id}</h1>}
      {query.error && <ProblemNotice problem={query.error} stale={sweep !== undefined} />}
      {query.error && !sweep && <Link className="button after" href="/sweeps">All sweeps</Link>}
      {query.isLoading && <p className="quiet">Loading the sweep…</p>}
      {sweep && <SweepView key={sweep.id} sweep={sweep} />}
    </main>
  );
}

/** A name in the address is replaced by the id of the sweep that it names: later it may name another one. */
function useIdInAddress(name: string, sweep: Sweep | undefined): void {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  useEffect(() => {
    if (sweep === undefined || sweep.id === name) return;
    client.setQueryData(["sweep", sweep.id], sweep);
    navigate(sweepAddress(sweep.id) + location.search, { replace: true });
  }, [client, navigate, name, sweep]);
}

const NONE: readonly Trial[] = [];

function SweepView({ sweep }: { sweep: Sweep }) {
  const now = useNow();
  const ended = hasEnded(sweep.state);
  const query = useQuery({
    // Read once more, as a whole, when the sweep has ended, and not after that.
    queryKey: ["sweep", sweep.id, "trials", ended],
    queryFn: ({ client, queryKey, signal }) => listTrials(sweep.id, client.getQueryData<TrialList>(queryKey), signal),
    refetchInterval: ended ? untilRead : POLL_MS,
    placeholderData: (before) => before,
  });
  const trials = query.data?.trials ?? NONE;
  return (
    <div className="stack">
      <SweepHead sweep={sweep} />
      {sweep.message !== null && sweep.message !== "" && <p className="card pad">{sweep.message}</p>}
      {query.error && <ProblemNotice problem={query.error} stale={query.data !== undefined} />}
      <div className="columns">
        <div className="stack">
          <LoadedPart><BestChart sweep={sweep} trials={trials} /></LoadedPart>
          <RungTable sweep={sweep} trials={trials} />
        </div>
        <div className="stack">
          {sweep.best && <BestTrial sweep={sweep} best={sweep.best} />}
          <SweepFacts sweep={sweep} now={now} />
        </div>
      </div>
      {trials.length > 0 && <Trials sweep={sweep} trials={trials} />}
    </div>
  );
}

/** The lines and the table; brushes at the lines filter the table. */
const Trials = memo(function Trials({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const [brushes, brush] = useState<Brushes>({});
  const [chosen, point] = useState<number | null>(null);
  const { parameters, metric } = sweep;
  const axes = useMemo(() => axesOf({ parameters, metric }, trials), [parameters, metric, trials]);
  // A drag moves the brush at once; a thousand lines and rows follow.
  const settled = useDeferredValue(brushes);
  const shown = useMemo(() => brushed(trials, axes, settled), [trials, axes, settled]);
  const kept = useMemo(() => new Set(shown.map(({ number }) => number)), [shown]);
  return (
    <>
      <ParallelCoordinates sweep={sweep} trials={trials} axes={axes} brushes={brushes} onBrushes={brush} kept={kept} chosen={chosen} />
      <TrialTable sweep={sweep} trials={shown} of={trials.length} onPoint={point} />
    </>
  );
});
