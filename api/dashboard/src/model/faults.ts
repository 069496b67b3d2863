/** The kinds of faults, in words. */

import type { FaultKind } from "../api/faults";

/** What each does, and whether it is of one rank. */
export const FAULTS: Readonly<Record<FaultKind, { about: string; ofRank: boolean }>> = {
  "kill-rank": { about: "SIGKILL to the rank's trainer. The gang is repaired in place.", ofRank: true },
  "kill-actor": { about: "SIGKILL to the rank's actor and its trainer.", ofRank: true },
  "hang-rank": { about: "SIGSTOP to the rank's trainer, until the watchdog finds the hang.", ofRank: true },
  "slow-rank": { about: "Adds 50 ms of compute time to each step of the rank, for 20 s.", ofRank: true },
  "kill-supervisor": { about: "SIGKILL to the gang's supervisor. Training continues.", ofRank: false },
  "corrupt-checkpoint": { about: "Flips one bit of the newest checkpoint.", ofRank: false },
};
