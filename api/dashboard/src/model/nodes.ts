/** What the machines have and what is in use of it, in words. */

import type { Devices, Node } from "../api/nodes";

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
