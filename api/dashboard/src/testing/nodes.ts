/** A machine and a cordon for tests, as the wire has them. */

import type { Schema } from "../api/http";

export const nodeWire = (changes: Partial<Schema<"Node">> = {}): Schema<"Node"> => ({
  id: "0123456789abcdef",
  host: "gpu-1",
  cluster: "default",
  alive: true,
  cpu: 8,
  gpu: 2,
  cpu_used: 1,
  gpu_used: 1,
  memory_bytes: 2 ** 34,
  host_memory_bytes: 2 ** 35,
  gpu_model: "",
  image: "",
  zone: "",
  rail: "",
  domain: "",
  seen_at: "2026-11-21T12:00:00Z",
  faults: 0,
  cordon: null,
  in_use: true,
  use: null,
  devices: [{ kind: "cpu", all: 32, free: 28 }, { kind: "cuda", all: 2, free: 1 }],
  held: [],
  held_more: 0,
  ...changes,
});

export const cordonWire: Schema<"Cordon"> = {
  node: "0123456789abcdef",
  since: "2026-11-21T11:00:00Z",
  until: null,
  by_hand: true,
  actor: "local",
  message: "fan replaced at noon",
  ended_at: null,
  ended_by: null,
};
