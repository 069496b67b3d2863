/** What the machines have and what is in use of it, in words. */

import type { DeviceCapacity, Node } from "../api/nodes";
import { TITLES } from "./system-metrics";

const KINDS: Readonly<Record<string, string>> = { cpu: "CPU ranks", cuda: "GPUs" };

/** What jobs count by: a core may take several CPU ranks. */
export const kindName = (kind: string) => KINDS[kind] ?? kind;

export const inUse = ({ all, free }: DeviceCapacity) => `${all - free} of ${all}`;

/** What the living machines have, counted as on their cards: `2 machines · 1 of 4 GPUs in use · 4 of 32 CPU ranks in use`. */
export function capacity(nodes: readonly Node[]): string {
  const alive = nodes.filter((node) => node.alive);
  const sums = new Map<string, DeviceCapacity>();
  for (const { kind, all, free } of alive.flatMap(({ devices }) => devices)) {
    const known = sums.get(kind) ?? { kind, all: 0, free: 0 };
    sums.set(kind, { kind, all: known.all + all, free: known.free + free });
  }
  const kinds = [...sums.values()].toSorted((a, b) => b.kind.localeCompare(a.kind));
  return [alive.length === 1 ? "1 machine" : `${alive.length} machines`, ...kinds.map((one) => `${inUse(one)} ${kindName(one.kind)} in use`)].join(" · ");
}

/** Those with a text in their host or id, in any case. */
export function named(nodes: readonly Node[], text: string): readonly Node[] {
  const part = text.trim().toLowerCase();
  return part === "" ? nodes : nodes.filter(({ id, host }) => host.toLowerCase().includes(part) || id.toLowerCase().includes(part));
}

/** By devices in use, then by CPU use, the most first. */
export function busiest(nodes: readonly Node[]): readonly Node[] {
  const held = (node: Node) => node.devices.reduce((sum, { all, free }) => sum + all - free, 0);
  return nodes.toSorted((a, b) => held(b) - held(a) || (b.use?.cpu ?? 0) - (a.use?.cpu ?? 0) || a.host.localeCompare(b.host));
}

const OF_DEVICES: Readonly<Record<string, string>> = { "devices/cpu/used": "CPU ranks in use", "devices/cuda/used": "GPUs in use" };

/** The title of a chart by its name: a kind of devices, who has them, or a metric of a machine. */
export function chartTitle(name: string): string {
  const [by, kind] = name.split(" ");
  if (kind !== undefined) return `${kindName(kind)} by ${by ?? ""}`;
  return KINDS[name] ?? OF_DEVICES[name] ?? TITLES[`node/${name}`] ?? TITLES[`rank/${name}`] ?? name;
}
