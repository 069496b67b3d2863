/** The bar on every page: the way home, and what the cluster has. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { getCapacity, type Capacity } from "../services/nodes";

export function TopBar() {
  const { data } = useQuery({ queryKey: ["nodes"], queryFn: ({ signal }) => getCapacity(signal), refetchInterval: 5000 });
  return (
    <header className="top-bar">
      <Link href="/" className="wordmark">
        <img src="/favicon.svg" alt="" width="20" height="20" /> Shardyard
      </Link>
      {data && data.nodes > 0 && <span className="quiet number">{inWords(data)}</span>}
    </header>
  );
}

function inWords({ nodes, cpu, cpuUsed, gpu, gpuUsed }: Capacity): string {
  const round = (n: number) => String(Math.round(n * 10) / 10);
  const parts = [nodes === 1 ? "1 node" : `${nodes} nodes`, `${round(cpuUsed)} of ${round(cpu)} CPUs used`];
  if (gpu > 0) parts.push(`${round(gpuUsed)} of ${round(gpu)} GPUs used`);
  return parts.join(" · ");
}
