/** The kinds of faults, in words. */

import type { FaultKind } from "../api/faults";

/** What each does, and whether it is of one rank. */
export const FAULTS: Readonly<Record<FaultKind, { about: string; ofRank: boolean }>> = {
  "kill-rank": { about: "SIGKILL to the rank's trainer. The gang is repaired in place.", ofRank: true },
  "kill-actor": { about: "SIGKILL to the rank's actor, and with it its trainer.", ofRank: true },
  "hang-rank": { about: "SIGSTOP to the rank's trainer, until the hang is found.", ofRank: true },
  "slow-rank": { about: "The rank computes 50 ms for nothing in each step, for 20 s.", ofRank: true },
  "kill-supervisor": { about: "SIGKILL to the gang's supervisor. Training goes on.", ofRank: false },
  "corrupt-checkpoint": { about: "A bit of the newest checkpoint is flipped.", ofRank: false },
};
