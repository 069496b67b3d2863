/** `/cluster`: the machines, the jobs on them, and the cordons. */

import { useQuery } from "@tanstack/react-query";
import { listCordons, listNodes, type Node } from "../api/nodes";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { CordonNode } from "../features/cluster/cordon-node";
import { CordonTable } from "../features/cluster/cordon-table";
import { NodeCard } from "../features/cluster/node-card";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";
import { capacity } from "../model/nodes";
import "../features/cluster/cluster.css";

const POLL_MS = 3000;

export function ClusterPage() {
  useTitle("Cluster");
  const now = useNow();
  const nodes = useQuery({ queryKey: ["nodes"], queryFn: ({ signal }) => listNodes(signal), refetchInterval: POLL_MS });
  const cordons = useQuery({ queryKey: ["cordons"], queryFn: ({ signal }) => listCordons(signal), refetchInterval: 5 * POLL_MS });
  return (
    <main className="page">
      <div className="page-head">
        <h1>Cluster</h1>
        {nodes.data && <p className="quiet number">{formatNodes(nodes.data)}</p>}
      </div>
      {nodes.error && <ProblemNotice problem={nodes.error} stale={nodes.data !== undefined} />}
      {nodes.isLoading && <p className="quiet">Loading the machines…</p>}
      {nodes.data?.length === 0 && (
        <Empty title="No machines yet"><p>The dispatcher lists them as soon as it reaches the Ray cluster.</p></Empty>
      )}
      {nodes.data && (
        <ul className="nodes">
          {nodes.data.map((node) => (
            <li key={node.id}><NodeCard node={node} now={now} action={node.alive && <CordonNode node={node} />} /></li>
          ))}
        </ul>
      )}
      {cordons.data && cordons.data.length > 0 && <CordonTable cordons={cordons.data} hosts={hosts(nodes.data ?? [])} now={now} />}
    </main>
  );
}

const hosts = (nodes: readonly Node[]) => new Map(nodes.map((node) => [node.id, node.host]));

/** What is there and in use, and how many machines get no new jobs. */
function formatNodes(nodes: readonly Node[]): string {
  const kept = nodes.filter((node) => node.alive && !node.inUse).length;
  return kept === 0 ? capacity(nodes) : `${capacity(nodes)} · ${kept} cordoned`;
}
