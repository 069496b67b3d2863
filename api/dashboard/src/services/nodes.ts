/** What the cluster holds, added up. */

import { get } from "./http";

export interface Capacity {
  nodes: number;
  cpu: number;
  cpuUsed: number;
  gpu: number;
  gpuUsed: number;
}

interface NodeWire {
  alive?: boolean;
  cpu?: number | null;
  gpu?: number | null;
  cpu_used?: number | null;
  gpu_used?: number | null;
}

/** Raises `Problem`. */
export async function getCapacity(signal?: AbortSignal): Promise<Capacity> {
  const { items } = (await get("/v1/nodes", signal)) as { items: NodeWire[] };
  const alive = items.filter((node) => node.alive !== false);
  const sum = (of: (node: NodeWire) => number | null | undefined) => alive.reduce((all, node) => all + (of(node) ?? 0), 0);
  return {
    nodes: alive.length,
    cpu: sum((n) => n.cpu),
    cpuUsed: sum((n) => n.cpu_used),
    gpu: sum((n) => n.gpu),
    gpuUsed: sum((n) => n.gpu_used),
  };
}
