/** The tab Use over time: the devices of the cluster, who has them, and what each machine uses. Only machines in view are read and drawn. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { getClusterUse, getNodeUse, type Range } from "../../api/cluster";
import { Empty } from "../../components/empty";
import { ProblemNotice } from "../../components/problem-notice";
import { useInView } from "../../hooks/use-in-view";
import { useNodes } from "../../hooks/use-nodes";
import { busiest, chartTitle, named } from "../../model/nodes";
import { RangeChoice, useClusterView } from "./cluster-range";
import { UsePlot } from "./use-chart";
import "./cluster.css";

/** A sample is taken each minute. */
const POLL_MS = 30_000;
/** Machines that are listed at first, and with each press of More. */
const AT_ONCE = 12;
/** Of a machine that is not opened. */
const BRIEF = ["cpu", "gpu_utilization"];

export function ClusterUse() {
  const view = useClusterView();
  const { range, change } = view;
  const { data, error } = useQuery({
    queryKey: ["cluster-use", range],
    queryFn: ({ signal }) => getClusterUse(range, signal),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
  return (
    <div className="stack">
      <section aria-label="Devices over time" className="stack">
        <div className="cluster-tools"><h2>Devices</h2><RangeChoice range={range} change={change} /></div>
        {error && <ProblemNotice problem={error} stale={data !== undefined} />}
        {!data && !error && <p className="quiet">Loading the samples…</p>}
        {data?.length === 0 && (
          <Empty title="No samples in this range"><p>The dispatcher samples the machines each minute. The devices in use, free and cordoned then appear here, by user and by team (label <code>team</code>).</p></Empty>
        )}
        {data && data.length > 0 && (
          <div className="charts cluster-panels">
            {data.map((chart) => <UsePlot key={chart.name} title={chartTitle(chart.name)} chart={chart} range={range} group="cluster" />)}
          </div>
        )}
      </section>
      {view.node === null
        ? <Machines range={range} onOpen={(node) => { change({ node }); }} />
        : <OneMachine node={view.node} range={range} onClose={() => { change({ node: null }); }} />}
    </div>
  );
}

const useNodeUse = (node: string, range: Range) =>
  useQuery({
    queryKey: ["node-use", node, range],
    queryFn: ({ signal }) => getNodeUse(node, range, signal),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

/** The busiest machines first, or those that a text names. */
function Machines({ range, onOpen }: { range: Range; onOpen: (node: string) => void }) {
  const { inView, watch } = useInView();
  const { data } = useNodes();
  const [text, setText] = useState("");
  const [most, setMost] = useState(AT_ONCE);
  if (!data || data.length === 0) return null;
  const found = busiest(named(data, text));
  return (
    <section aria-label="Machines over time" className="stack">
      <div className="cluster-tools">
        <h2>Machines <span className="quiet number">{found.length}</span></h2>
        <label><span className="unseen">Find a machine</span><input type="search" placeholder="Host or id" value={text} onChange={(event) => { setText(event.target.value); }} /></label>
      </div>
      {found.length === 0 && <p className="quiet">No machine has this text in its host or id.</p>}
      <ul className="charts cluster-panels">
        {found.slice(0, most).map(({ id, host }) => (
          <li key={id} ref={watch} data-panel={id} className="cluster-panel">
            {inView.has(id) ? <Brief node={id} host={host} range={range} onOpen={() => { onOpen(id); }} /> : <p className="card pad">{host}</p>}
          </li>
        ))}
      </ul>
      {found.length > most && <button className="button load-more" onClick={() => { setMost(most + AT_ONCE); }}>More machines</button>}
    </section>
  );
}

interface BriefProps {
  node: string;
  host: string;
  range: Range;
  onOpen: () => void;
}

function Brief({ node, host, range, onOpen }: BriefProps) {
  const { data, error } = useNodeUse(node, range);
  if (!data) return error ? <ProblemNotice problem={error} /> : <p className="card pad">{host}</p>;
  const lines = data.filter(({ name }) => BRIEF.includes(name)).flatMap(({ name, lines }) => lines.map((line) => (name === "cpu" ? { ...line, label: "CPUs" } : line)));
  const all = <button className="button small" onClick={onOpen}>All metrics <span className="unseen">of {host}</span></button>;
  if (lines.length === 0) return <div className="card pad"><p>{host} <span className="quiet">No gang ran on it in this range.</span></p>{all}</div>;
  return <UsePlot title={`${host} (% in use)`} chart={{ name: node, unit: "percent", lines }} range={range} group="cluster">{all}</UsePlot>;
}

function OneMachine({ node, range, onClose }: { node: string; range: Range; onClose: () => void }) {
  const { data, error } = useNodeUse(node, range);
  const host = useNodes().data?.find(({ id }) => id === node)?.host ?? node.slice(0, 12);
  return (
    <section aria-label={`${host} over time`} className="stack">
      <div className="cluster-tools"><h2>{host}</h2><button className="button small" onClick={onClose}>All machines</button></div>
      {error && <ProblemNotice problem={error} stale={data !== undefined} />}
      {data?.length === 0 && <p className="card pad quiet">This machine has no samples in this range. The dispatcher samples it each minute.</p>}
      <div className="charts cluster-panels">
        {data?.map((chart) => <UsePlot key={chart.name} title={chartTitle(chart.name)} chart={chart} range={range} group="cluster" />)}
      </div>
    </section>
  );
}
