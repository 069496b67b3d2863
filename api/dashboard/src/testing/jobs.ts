/** Jobs for tests, as the wire has them. */

import { type Job, type JobWire, toJob } from "../api/jobs";

export const jobWire = (changes: Partial<JobWire> = {}): JobWire => ({
  id: "job-1",
  name: "llama-nano",
  actor: "ada",
  state: "running",
  labels: { team: "research" },
  notes: "",
  spec: { name: "llama-nano", train: { steps: 600 } },
  layout: "data 2 (ZeRO-1) × tensor 2",
  layout_choice: null,
  reason: null,
  message: null,
  batch: "global batch 16 = 2 data × 2 micro-batches × 4 sequences",
  world_size: 4,
  device: "cpu",
  attempt: 1,
  restarts: 0,
  budgets: { restarts: { used: 0, limit: 3 }, retries: { used: 0, limit: 0 }, repairs: { used: 0, limit: 20 } },
  retry_at: null,
  finished_at: null,
  summary: null,
  checkpoint: null,
  parent: null,
  use: null,
  certificate: null,
  retry_of: null,
  retried_by: null,
  pinned: false,
  deleted_at: null,
  deleted_by: null,
  files: [],
  warnings: [],
  created_at: "2026-11-21T12:00:00Z",
  started_at: "2026-11-21T12:00:04Z",
  cursor: "0.0.0",
  progress: { step: 150, steps: 600, loss: 2.5, tokens_per_s: 10_342, eta_s: 250, tokens: 614_400 },
  ...changes,
});

export const job = (changes: Partial<JobWire> = {}): Job => toJob(jobWire(changes));
