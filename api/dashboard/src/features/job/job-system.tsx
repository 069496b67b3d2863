/** The tab System: what the job's nodes and ranks use, over time. Only the charts in view are read and drawn. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Job } from "../../api/jobs";
import { untilRead } from "../../api/retrying";
import { getSystem } from "../../api/system";
import { Chart, type Line } from "../../components/chart";
import { MetricGroup } from "../../components/metric-group";
import { ProblemNotice } from "../../components/problem-notice";
import { useInView } from "../../hooks/use-in-view";
import { isFinal } from "../../model/jobs";
import { alongTime, formatOf, pollMs, spanOf, systemGroups, TITLES } from "../../model/system-metrics";

const GROUP = "system";
/** Of the theme. Lines beyond them begin with the first again. */
const COLOURS = ["blue", "orange", "green", "violet", "red", "grey"] as const;
/** With more lines, bands hide each other. */
const MOST_BANDS = 3;

export function JobSystem({ job }: { job: Job }) {
  const ended = isFinal(job.state);
  const { inView, watch } = useInView();
  const { data, error } = useSystem(job.id, "node/cpu", null, ended);
  const groups = useMemo(() => systemGroups(data?.metrics ?? []), [data?.metrics]);
  if (!data) return error ? <ProblemNotice problem={error} /> : <p className="quiet">Loading the samples…</p>;
  if (groups.length === 0) return <p className="card pad quiet">{ended ? "No samples of this job are stored." : "Samples appear when the job’s ranks run."}</p>;
  return (
    <section className="stack" aria-label="System">
      {error && <ProblemNotice problem={error} stale />}
      {groups.map(({ name, metrics }) => (
        <MetricGroup key={name} name={name} count={metrics.length}>
          <div className="charts metric-panels">
            {metrics.map((metric) => (
              <div key={metric} ref={watch} data-panel={metric} className="metric-panel">
                {inView.has(metric) ? <SystemChart id={job.id} name={metric} ended={ended} /> : <p className="card metric-panel-empty">{TITLES[metric]}</p>}
              </div>
            ))}
          </div>
        </MetricGroup>
      ))}
    </section>
  );
}

const useSystem = (id: string, name: string, after: string | null, ended: boolean) =>
  useQuery({
    queryKey: ["system", id, name, after, ended],
    queryFn: async ({ signal }) => {
      const asked = performance.now();
      const found = await getSystem(id, name, after, signal);
      return { ...found, tookMs: performance.now() - asked };
    },
    placeholderData: keepPreviousData,
    refetchInterval: (query) => (ended ? untilRead(query) : pollMs(query.state.data?.width ?? 0, query.state.data?.tookMs ?? 0)),
  });

function SystemChart({ id, name, ended }: { id: string; name: string; ended: boolean }) {
  const [after, setAfter] = useState<string | null>(null);
  const { data, error } = useSystem(id, name, after, ended);
  const [found, bands] = [data?.lines, data?.band ?? false];
  const lines = useMemo<Line[]>(() => {
    const band = bands && (found?.length ?? 0) <= MOST_BANDS;
    return (found ?? []).map(({ label, points }, at) => ({ label, points, band, colour: COLOURS[at % COLOURS.length] ?? "grey" }));
  }, [found, bands]);
  const title = TITLES[name] ?? name;
  if (!data) return error ? <ProblemNotice problem={error} /> : <p className="card metric-panel-empty">{title}</p>;
  const format = formatOf(data.unit);
  const summary = `${data.lines.map(({ label, last }) => `${label} ends at ${format(last)}`).join(", ")}.`;
  return (
    <Chart title={title} summary={summary} lines={lines} format={format} group={GROUP} along={alongTime(spanOf(lines))}>
      {(data.next !== null || after !== null) && (
        <span className="chart-tools">
          <button className="button small" disabled={after === null} onClick={() => { setAfter(null); }}>First</button>
          <button className="button small" disabled={data.next === null} onClick={() => { setAfter(data.next); }}>Next</button>
        </span>
      )}
    </Chart>
  );
}
