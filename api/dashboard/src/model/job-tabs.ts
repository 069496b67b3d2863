/** The tabs of a job's page: which a job has, and what an open one needs of the job's stream. */

import type { Job } from "../api/jobs";
import { trains } from "./checkpoints";

export const TABS = ["overview", "metrics", "system", "ranks", "traces", "logs", "checkpoints", "files", "spec"] as const;

export type JobTab = (typeof TABS)[number];

export const TAB_NAMES: Readonly<Record<JobTab, string>> = {
  overview: "Overview",
  metrics: "Metrics",
  system: "System",
  ranks: "Ranks",
  traces: "Traces",
  logs: "Logs",
  checkpoints: "Checkpoints",
  files: "Files",
  spec: "Spec",
};

/** What a program does inside its steps is its own. */
const OF_PROGRAMS: readonly JobTab[] = ["overview", "metrics", "system", "logs", "checkpoints", "files", "spec"];

export const tabsOf = (job: Job): readonly JobTab[] => (trains(job) ? TABS.filter((tab) => tab !== "files") : OF_PROGRAMS);

/** The tab that an address names after the job's id; null: the job has none of this name. */
export const tabOf = (job: Job, name: string | undefined): JobTab | null => (name === undefined ? "overview" : (tabsOf(job).find((tab) => tab === name) ?? null));

/** What is read of a job's stream: nothing, its events and steps, or the metrics of its ranks too. */
export type StreamPart = "nothing" | "events" | "ranks";

/** A tab that does not show the stream's data does not read it. */
export function streamOf(job: Job, tab: JobTab | null): StreamPart {
  if (tab === "ranks") return "ranks";
  return tab === "overview" || (tab === "metrics" && trains(job)) ? "events" : "nothing";
}
