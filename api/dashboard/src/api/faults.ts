/** Faults that a user strikes a running job with, where the control plane allows it. */

import { post, type Schema } from "./http";

export type Fault = Schema<"Fault">;
export type Kind = Schema<"FaultRequest">["kind"];

/** What each does, and whether it is of one rank. */
export const KINDS: Readonly<Record<Kind, { about: string; ofRank: boolean }>> = {
  "kill-rank": { about: "SIGKILL to the rank's trainer. The gang is repaired in place.", ofRank: true },
  "kill-actor": { about: "SIGKILL to the rank's actor, and with it its trainer.", ofRank: true },
  "hang-rank": { about: "SIGSTOP to the rank's trainer, until the hang is found.", ofRank: true },
  "slow-rank": { about: "The rank computes 50 ms for nothing in each step, for 20 s.", ofRank: true },
  "kill-supervisor": { about: "SIGKILL to the gang's supervisor. Training goes on.", ofRank: false },
  "corrupt-checkpoint": { about: "A bit of the newest checkpoint is flipped.", ofRank: false },
};

/** Asked again with the same key, it strikes once. Raises `Problem`. */
export async function injectFault(id: string, kind: Kind, rank: number, key: string): Promise<Fault> {
  const text = JSON.stringify(KINDS[kind].ofRank ? { kind, rank } : { kind });
  const headers = { "Idempotency-Key": key };
  return post("/v1/jobs/{job}/faults", { path: { job: id } }, { type: "application/json", text, headers });
}
