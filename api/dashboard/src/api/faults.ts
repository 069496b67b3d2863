/** Fault injection into running jobs, where the control plane allows it. */

import { post, type Schema } from "./http";

export type Fault = Schema<"Fault">;
export type FaultKind = Schema<"FaultRequest">["kind"];

/** Injects one fault per key. `rank`: null for a fault that concerns no rank. Raises `Problem`. */
export async function injectFault(id: string, kind: FaultKind, rank: number | null, key: string): Promise<Fault> {
  const text = JSON.stringify(rank === null ? { kind } : { kind, rank });
  const headers = { "Idempotency-Key": key };
  return post("/v1/jobs/{job}/faults", { path: { job: id } }, { type: "application/json", text, headers });
}
