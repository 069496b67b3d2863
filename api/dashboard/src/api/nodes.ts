/** The cluster's machines as the dashboard has them. `toNode` is the only place that knows the wire's names. */

import { get, post, type Schema } from "./http";

export interface DeviceCapacity {
  kind: string;
  all: number;
  free: number;
}

/** What one job's gang has of a machine; `ranks` counts its spares too. */
export interface NodeAllocation {
  job: string;
  name: string;
  state: string;
  ranks: number;
  /** Of an elastic job: the fewest and the most ranks that it may have. */
  range: readonly [number, number] | null;
}

export interface Cordon {
  since: Date;
  /** Null: until it is lifted. */
  until: Date | null;
  byHand: boolean;
  actor: string;
  message: string;
}

export interface PastCordon extends Cordon {
  node: string;
  endedAt: Date | null;
  endedBy: string | null;
}

export interface NodeUse {
  /** Percent of all CPUs. */
  cpu: number | null;
  /** Bytes that are not available, and that are. */
  memoryUsed: number | null;
  memoryAvailable: number | null;
  /** Percent of the disk with the data folder. */
  diskFull: number | null;
  /** Bytes per second. */
  receive: number | null;
  send: number | null;
}

const toUse = (wire: Schema<"NodeUse">): NodeUse => ({
  cpu: wire.cpu,
  memoryUsed: wire.memory_used,
  memoryAvailable: wire.memory_available,
  diskFull: wire.disk_full,
  receive: wire.network_receive,
  send: wire.network_send,
});

export interface Node {
  id: string;
  host: string;
  /** Null if the cluster has the default name. */
  cluster: string | null;
  alive: boolean;
  memoryBytes: number;
  seenAt: Date | null;
  faults: number;
  inUse: boolean;
  cordon: Cordon | null;
  /** What its processes use; null if no gang samples it now. */
  use: NodeUse | null;
  devices: readonly DeviceCapacity[];
  held: readonly NodeAllocation[];
  /** Further gangs on it, beyond those in `held`. */
  heldMore: number;
}

const toCordon = (wire: Schema<"Cordon">): Cordon => ({
  since: new Date(wire.since),
  until: wire.until ? new Date(wire.until) : null,
  byHand: wire.by_hand,
  actor: wire.actor,
  message: wire.message,
});

/** The default of `SHARDYARD_CLUSTER`. */
const DEFAULT_CLUSTER = "default";

export const toNode = (wire: Schema<"Node">): Node => ({
  id: wire.id,
  host: wire.host,
  cluster: wire.cluster === DEFAULT_CLUSTER ? null : wire.cluster,
  alive: wire.alive,
  memoryBytes: wire.memory_bytes,
  seenAt: wire.seen_at ? new Date(wire.seen_at) : null,
  faults: wire.faults,
  inUse: wire.in_use,
  cordon: wire.cordon ? toCordon(wire.cordon) : null,
  use: wire.use ? toUse(wire.use) : null,
  devices: wire.devices,
  held: wire.held.map(({ elastic, ...rest }) => ({ ...rest, range: elastic ? [elastic.min, elastic.max] : null })),
  heldMore: wire.held_more,
});

/** Raises `Problem`. */
export async function listNodes(signal?: AbortSignal): Promise<Node[]> {
  return (await get("/v1/nodes", { signal })).items.map(toNode);
}

/** The newest cordons, among them those in force. Raises `Problem`. */
export async function listCordons(signal?: AbortSignal): Promise<PastCordon[]> {
  const { items } = await get("/v1/cordons", { query: { limit: 50 }, signal });
  return items.map((wire) => ({
    ...toCordon(wire),
    node: wire.node,
    endedAt: wire.ended_at ? new Date(wire.ended_at) : null,
    endedBy: wire.ended_by ?? null,
  }));
}

/** Keeps new gangs off the machine for `seconds`; null: until the cordon is lifted. Raises `Problem`. */
export async function cordonNode(id: string, seconds: number | null, message: string): Promise<Node> {
  return toNode(await post("/v1/nodes/{node}/cordon", { path: { node: id }, query: { seconds, message } }));
}

/** Does nothing if the machine is not cordoned. Raises `Problem`. */
export async function liftCordon(id: string): Promise<Node> {
  return toNode(await post("/v1/nodes/{node}/uncordon", { path: { node: id } }));
}
