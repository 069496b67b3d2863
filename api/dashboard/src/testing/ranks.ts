/** Samples of ranks for tests. */

import { type RankSample, type RankWire, toRankSample } from "../api/ranks";

export function rankWire(axes: Record<string, number>, own: (rank: number) => number, changes: Partial<RankWire> = {}): RankWire {
  const size = Object.values(axes).reduce((a, b) => a * b, 1);
  const by = <T>(value: (rank: number) => T) => Array.from({ length: size }, (_, rank) => value(rank));
  return {
    position: 1,
    ts: 1_763_700_000,
    attempt: 1,
    step: 40,
    steps: 10,
    timed_steps: null,
    axes,
    parts: by(() => 0),
    step_s: by(() => 0.2),
    busy_s: by(own),
    wait_s: by((rank) => 0.2 - own(rank)),
    memory: by(() => null),
    memory_of: "resident",
    nodes: ["f".repeat(56)],
    node_of: by(() => 0),
    slow: null,
    ...changes,
  };
}

export const sample = (axes: Record<string, number>, own: (rank: number) => number, changes: Partial<RankWire> = {}): RankSample => toRankSample(rankWire(axes, own, changes));
