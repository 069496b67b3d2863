/** Events, checkpoints, operations and timelines for tests, as the wire has them. */

import type { Checkpoint } from "../api/checkpoints";
import type { Incident } from "../api/incidents";
import type { Operation } from "../api/operations";
import type { Timeline } from "../api/timeline";

export const incident = (changes: Partial<Incident> = {}): Incident => ({
  position: 7,
  ts: 1_795_000_000,
  attempt: 1,
  cause: "rank_lost",
  rank: 1,
  node: "node-a",
  generation: 1,
  step: 120,
  message: "SIGKILL",
  traceback: null,
  stacks: [],
  waiting: [],
  nccl_ras: [],
  log: [],
  ranks: [],
  repair: null,
  summary: "Rank 1 on node node-a was lost after step 120: SIGKILL.",
  ...changes,
});

export const checkpoint = (changes: Partial<Checkpoint> = {}): Checkpoint => ({
  position: 9,
  ts: 1_795_000_000,
  attempt: 1,
  step: 100,
  state: "present",
  pinned: false,
  models: [],
  path: "/data/checkpoints/job-1/step-00000100",
  bytes: 14_600_000,
  seconds: 0.21,
  held_s: 0.01,
  ...changes,
});

export const operation = (changes: Partial<Operation> = {}): Operation => ({
  id: "op-1",
  job: "job-1",
  kind: "verify",
  position: 9,
  step: 100,
  path: "/data/checkpoints/job-1/step-00000100",
  dtype: null,
  state: "pending",
  verified: null,
  exported: null,
  pinned: null,
  error: null,
  actor: "local",
  asked_at: "2026-11-22T10:00:00Z",
  started_at: null,
  settled_at: null,
  ...changes,
});

export const timeline = (changes: Partial<Timeline> = {}): Timeline => ({
  spans: [
    { state: "queued", attempt: 0, generation: 0, begun: 1000, ended: 1010, reason: null },
    { state: "running", attempt: 1, generation: 2, begun: 1010, ended: 1060, reason: null },
    { state: "running", attempt: 2, generation: 1, begun: 1060, ended: null, reason: null },
  ],
  marks: [{ position: 7, ts: 1035, kind: "incident", attempt: 1, about: "rank_lost", rank: 1, step: 120 }],
  complete: true,
  ...changes,
});
