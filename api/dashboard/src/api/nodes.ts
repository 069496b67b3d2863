/** The cluster's machines as the dashboard speaks of them. `toNode` is the only place that knows the wire's names. */

import { get, post, type Schema } from "./http";

export interface Devices {
  kind: string;
  all: number;
  free: number;
}

/** What one job's gang has of a machine; `ranks` counts its spares too. */
export interface Holding {
  job: string;
  name: string;
  state: string;
  ranks: number;
  /** Of an elastic job: the fewest and the most replicas that it may have. */
  range: readonly [number, number] | null;
}

export interface Cordon {
  since: Date;
  /** Null: until somebody lifts it. */
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

export interface Node {
  id: string;
  host: string;
  /** Null where nobody gave the cluster a name: there is but one then. */
  cluster: string | null;
  alive: boolean;
  memoryBytes: number;
  seenAt: Date | null;
  faults: number;
  inUse: boolean;
  cordon: Cordon | null;
  devices: readonly Devices[];
  held: readonly Holding[];
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

/** `SHARDYARD_CLUSTER` of a control plane that was not told another. */
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
  devices: wire.devices,
  held: wire.held.map(({ elastic, ...rest }) => ({ ...rest, range: elastic ? [elastic.min, elastic.max] : null })),
  heldMore: wire.held_more,
});

/** Raises `Problem`. */
export async function listNodes(signal?: AbortSignal): Promise<Node[]> {
  return (await get("/v1/nodes", { signal })).items.map(toNode);
}

/** The newest cordons, those that hold among them. Raises `Problem`. */
export async function listCordons(signal?: AbortSignal): Promise<PastCordon[]> {
  const { items } = await get("/v1/cordons", { query: { limit: 50 }, signal });
  return items.map((wire) => ({
    ...toCordon(wire),
    node: wire.node,
    endedAt: wire.ended_at ? new Date(wire.ended_at) : null,
    endedBy: wire.ended_by ?? null,
  }));
}

const KINDS: Readonly<Record<string, string>> = { cpu: "CPU ranks", cuda: "GPUs" };

/** What jobs count by: a core may take several CPU ranks. */
export const kindName = (kind: string) => KINDS[kind] ?? kind;

export const inUse = ({ all, free }: Devices) => `${all - free} of ${all}`;

/** What the living machines have, counted as on their cards: `2 machines · 1 of 4 GPUs in use · 4 of 32 CPU ranks in use`. */
export function capacity(nodes: readonly Node[]): string {
  const alive = nodes.filter((node) => node.alive);
  const sums = new Map<string, Devices>();
  for (const { kind, all, free } of alive.flatMap(({ devices }) => devices)) {
    const known = sums.get(kind) ?? { kind, all: 0, free: 0 };
    sums.set(kind, { kind, all: known.all + all, free: known.free + free });
  }
  const kinds = [...sums.values()].toSorted((a, b) => b.kind.localeCompare(a.kind));
  return [alive.length === 1 ? "1 machine" : `${alive.length} machines`, ...kinds.map((one) => `${inUse(one)} ${kindName(one.kind)} in use`)].join(" · ");
}

/** New gangs keep away from it for so many seconds, null: until somebody lifts it. Raises `Problem`. */
export async function cordonNode(id: string, seconds: number | null, message: string): Promise<Node> {
  return toNode(await post("/v1/nodes/{node}/cordon", { path: { node: id }, query: { seconds, message } }));
}

/** Harmless when it is not cordoned. Raises `Problem`. */
export async function liftCordon(id: string): Promise<Node> {
  return toNode(await post("/v1/nodes/{node}/uncordon", { path: { node: id } }));
}
