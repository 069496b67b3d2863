/** Models and versions for tests, as the wire has them. */

import type { Schema } from "../api/http";

export const modelWire = (changes: Partial<Schema<"Model">> = {}): Schema<"Model"> => ({
  name: "nano",
  latest: 2,
  aliases: [{ model: "nano", alias: "best", version: 1, actor: "ada", set_at: "2026-11-21T12:00:00Z" }],
  actor: "ada",
  created_at: "2026-11-21T12:00:00Z",
  ...changes,
});

export const versionWire = (changes: Partial<Schema<"ModelVersion">> = {}): Schema<"ModelVersion"> => ({
  model: "nano",
  number: 1,
  job: "job-1",
  step: 100,
  artifact: null,
  path: "/data/checkpoints/job-1/step-00000100",
  digest: "d1",
  state: "present",
  pinned: true,
  trained: true,
  metrics: { loss: 2.5, broken: null },
  notes: "rhymes",
  aliases: ["best"],
  actor: "ada",
  created_at: "2026-11-21T12:00:00Z",
  ...changes,
});
