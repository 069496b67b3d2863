/** `/cluster`: the machines, the jobs on them, and the cordons; in tabs their use over time, the queue, and the history. */

import { useQuery } from "@tanstack/react-query";
import { lazy, useState } from "react";
import { Link, useSearch } from "wouter";
import { listCordons, type Node } from "../api/nodes";
import { Empty } from "../components/empty";
import { LoadedPart } from "../components/loaded-part";
import { ProblemNotice } from "../components/problem-notice";
import { TabLinks } from "../components/tab-links";
import { CordonNode } from "../features/cluster/cordon-node";
import { CordonTable } from "../features/cluster/cordon-table";
import { NodeCard } from "../features/cluster/node-card";
import { useNodes } from "../hooks/use-nodes";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import { CLUSTER_TABS, clusterAddress, type ClusterTab } from "../model/addresses";
import { capacity, named } from "../model/nodes";
import "../features/cluster/cluster.css";

const ClusterUse = lazy(async () => ({ default: (await import("../features/cluster/cluster-use")).ClusterUse }));
const ClusterQueue = lazy(async () => ({ default: (await import("../features/cluster/cluster-queue")).ClusterQueue }));
const ClusterHistory = lazy(async () => ({ default: (await import("../features/cluster/cluster-history")).ClusterHistory }));

const CORDONS_MS = 15_000;
/** Machines that are shown at first, and with each press of More. */
const AT_ONCE = 60;
/** Up to as many are seen at a glance. */
const FEW = 6;

export function ClusterPage({ tab = "machines" }: { tab?: string | undefined }) {
  const open = (Object.keys(CLUSTER_TABS) as ClusterTab[]).find((one) => one === tab) ?? null;
  useTitle(open === null || open === "machines" ? "Cluster" : `${CLUSTER_TABS[open]} · Cluster`);
  const nodes = useNodes();
  const search = useSearch();
  const tabs = Object.entries(CLUSTER_TABS) as [ClusterTab, string][];
  return (
    <main className="page">
      <div className="page-head">
        <h1>Cluster</h1>
        {nodes.data && <p className="quiet number">{formatNodes(nodes.data)}</p>}
      </div>
      <div className="before">
        <TabLinks label="Tabs of the cluster" tabs={tabs.map(([one, name]) => ({ name, address: clusterAddress(one, search === "" ? "" : `?${search}`), open: one === open }))} />
      </div>
      {nodes.error && <ProblemNotice problem={nodes.error} stale={nodes.data !== undefined} />}
      {open === "machines" && (nodes.data ? <Machines nodes={nodes.data} /> : nodes.isLoading && <p className="quiet">Loading the machines…</p>)}
      <LoadedPart>
        {open === "use" && <ClusterUse />}
        {open === "queue" && <ClusterQueue />}
        {open === "history" && <ClusterHistory />}
      </LoadedPart>
      {open === null && <p>The cluster has no tab of this name.</p>}
    </main>
  );
}

function Machines({ nodes }: { nodes: readonly Node[] }) {
  const now = useNow();
  const [text, setText] = useState("");
  const [most, setMost] = useState(AT_ONCE);
  const cordons = useQuery({ queryKey: ["cordons"], queryFn: ({ signal }) => listCordons(signal), refetchInterval: CORDONS_MS });
  const found = named(nodes, text);
  return (
    <>
      {nodes.length === 0 && <Empty title="No machines yet"><p>The dispatcher lists them as soon as it reaches the Ray cluster.</p></Empty>}
      {nodes.length > FEW && (
        <label className="cluster-find"><span className="unseen">Find a machine</span><input type="search" placeholder="Host or id" value={text} onChange={(event) => { setText(event.target.value); }} /></label>
      )}
      <ul className="nodes">
        {found.slice(0, most).map((node) => (
          <li key={node.id}><NodeCard node={node} now={now} action={<div className="cluster-tools">{node.alive ? <CordonNode node={node} /> : <span />}<NodeLinks node={node} /></div>} /></li>
        ))}
      </ul>
      {found.length === 0 && nodes.length > 0 && <p className="quiet">No machine has this text in its host or id.</p>}
      {found.length > most && <button className="button load-more" onClick={() => { setMost(most + AT_ONCE); }}>More machines</button>}
      {cordons.data && cordons.data.length > 0 && <CordonTable cordons={cordons.data} hosts={hosts(nodes)} now={now} />}
    </>
  );
}

function NodeLinks({ node: { id, host } }: { node: Node }) {
  const search = `?${new URLSearchParams({ node: id }).toString()}`;
  return (
    <span className="node-links">
      <Link href={clusterAddress("use", search)}>Use over time <span className="unseen">of {host}</span></Link>
      <Link href={clusterAddress("history", search)}>History <span className="unseen">of {host}</span></Link>
    </span>
  );
}

const hosts = (nodes: readonly Node[]) => new Map(nodes.map((node) => [node.id, node.host]));

/** What is there and in use, and how many machines get no new jobs. */
function formatNodes(nodes: readonly Node[]): string {
  const kept = nodes.filter((node) => node.alive && !node.inUse).length;
  return kept === 0 ? capacity(nodes) : `${capacity(nodes)} · ${kept} cordoned`;
}
