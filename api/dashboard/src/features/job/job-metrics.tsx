/** The tab Metrics: charts by name, a training's own first, then what the program logs. One search, range and axis are for all of them. */

import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import type { Range } from "../../api/curves";
import type { Job } from "../../api/jobs";
import { getLoggedMetrics } from "../../api/logged-metrics";
import { untilRead } from "../../api/retrying";
import { ChartControls } from "../../components/chart-controls";
import { MetricGroup } from "../../components/metric-group";
import { ProblemNotice } from "../../components/problem-notice";
import { useAddressState } from "../../hooks/use-address-state";
import { useOnceEnded } from "../../hooks/use-once-ended";
import * as chartView from "../../model/chart-view";
import { trains } from "../../model/checkpoints";
import { lastStep } from "../../model/curve";
import { isFinal } from "../../model/jobs";
import { groupsOf } from "../../model/metric-groups";
import { chartsFound } from "../../model/training-charts";
import { JobCharts, NoCurves } from "./job-charts";
import { LoggedCharts } from "./logged-charts";
import type { LiveJob } from "./use-live";

/** For new names; a program's first one is waited for. */
const POLL_MS = 10_000;
const FIRST_MS = 3000;

export function JobMetrics({ job, live }: { job: Job; live: LiveJob }) {
  const [view, change] = useAddressState(chartView);
  const ended = isFinal(job.state);
  const { data: logged, error, refetch } = useQuery({
    queryKey: ["logged-metrics", job.id],
    queryFn: ({ signal }) => getLoggedMetrics(job.id, signal),
    refetchInterval: (query) => (ended ? untilRead(query) : trains(job) || query.state.data?.length ? POLL_MS : FIRST_MS),
  });
  useOnceEnded(ended, refetch);
  const groups = useMemo(() => groupsOf(logged ?? [], view.find), [logged, view.find]);
  const own = chartsFound(live.curve, view.find);
  const last = logged?.reduce((newest, one) => Math.max(newest, one.lastStep), lastStep(live.curve)) ?? lastStep(live.curve);
  const onZoom = useCallback((zoom: Range | null) => { change({ zoom: zoom && chartView.rangeOf(...zoom) }); }, [change]);
  const count = own.length + groups.reduce((sum, { metrics }) => sum + metrics.length, 0);
  if (live.curve.buckets.length === 0 && !logged?.length) {
    if (error) return <ProblemNotice problem={error} />;
    if (!logged) return <p className="quiet">Loading the metrics…</p>;
    return trains(job) ? <NoCurves job={job} live={live} /> : <NothingLogged ended={ended} />;
  }
  return (
    <section className="stack" aria-label="Metrics">
      <ChartControls view={view} onChange={change} lastStep={last} count={count} axes={trains(job)} />
      {count === 0 && <p className="card pad quiet">No metric’s name contains this text.</p>}
      {own.length > 0 && (
        <MetricGroup name="Training" count={own.length}>
          <JobCharts id={job.id} of={job.name} charts={own} live={live} ended={ended} view={view} onZoom={onZoom} />
        </MetricGroup>
      )}
      {groups.length > 0 && <LoggedCharts id={job.id} of={job.name} groups={groups} ended={ended} view={view} onZoom={onZoom} />}
    </section>
  );
}

function NothingLogged({ ended }: { ended: boolean }) {
  if (ended) return <p className="card pad quiet">No logged metrics of this job are stored.</p>;
  return <p className="card pad quiet">Curves appear when the program logs numbers: <code>shardyard.log({"{"}&quot;loss&quot;: 0.5{"}"}, step=1)</code></p>;
}

