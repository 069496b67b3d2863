/** Sweeps and trials for tests, as the wire has them. */

import { type Sweep, type SweepWire, toSweep, toTrial, type Trial, type TrialWire } from "../api/sweeps";

export const trialWire = (changes: Partial<TrialWire> = {}): TrialWire => ({
  number: 0,
  state: "succeeded",
  parameters: { "train.optimizer.lr": 0.001, "train.global_batch": 8 },
  job: "job-0",
  job_state: "succeeded",
  step: 90,
  rungs: [],
  value: 2.5,
  message: null,
  device_s: 30,
  ...changes,
});

export const sweepWire = (changes: Partial<SweepWire> = {}): SweepWire => ({
  id: "sweep-1",
  name: "tune",
  state: "running",
  message: null,
  sweep: {
    parameters: {
      "train.optimizer.lr": { values: null, min: 0.0001, max: 0.01, scale: "log", count: null },
      "train.global_batch": [8, 16],
    },
    search: "random",
    trials: 4,
    seed: 0,
    metric: null,
    goal: "minimize",
    parallel: 2,
    asha: { min_steps: 10, reduction: 3, max_steps: null, losers: "pause" },
  },
  metric: "loss",
  rungs: [10, 30],
  trials: 4,
  counts: { succeeded: 1, active: 1, stopped: 1, waiting: 1 },
  best: trialWire(),
  device_s: 75,
  spec: {},
  actor: "local",
  created_at: "2026-11-21T12:00:00Z",
  finished_at: null,
  ...changes,
});

export const sweep = (changes: Partial<SweepWire> = {}): Sweep => toSweep(sweepWire(changes));
export const trial = (changes: Partial<TrialWire> = {}): Trial => toTrial(trialWire(changes));
