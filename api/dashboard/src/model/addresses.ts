/** Addresses of pages. */

import type { JobTab } from "./job-tabs";

/** A comparison shows at most this many jobs: more curves cannot be distinguished. */
export const MAX_COMPARED = 6;

export const compareAddress = (jobs: readonly string[]) => `/compare?${new URLSearchParams(jobs.map((job) => ["job", job])).toString()}`;

/** `search`: what the tab is set to, with its question mark, or empty. */
export const jobAddress = (id: string, tab: JobTab = "overview", search = "") => `/jobs/${encodeURIComponent(id)}${tab === "overview" ? "" : `/${tab}`}${search}`;

/** `sweep`: its id, or a name of which the newest is meant. */
export const sweepAddress = (sweep: string) => `/sweeps/${encodeURIComponent(sweep)}`;

export const modelAddress = (model: string) => `/models/${encodeURIComponent(model)}`;

export const logAddress = (id: string, rank: number) => jobAddress(id, "logs", `?rank=${rank}`);

/** The id in a part of an address, of which the router has decoded what is not reserved. A part that is no encoding is itself. */
export function idOf(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The tabs of the page Cluster. */
export const CLUSTER_TABS = { machines: "Machines", use: "Use over time", queue: "Queue", history: "History" } as const;

export type ClusterTab = keyof typeof CLUSTER_TABS;

/** `search`: with its question mark, or empty. */
export const clusterAddress = (tab: ClusterTab = "machines", search = "") => `/cluster${tab === "machines" ? "" : `/${tab}`}${search}`;

/** The page at an address. The tabs of a job, and those of the cluster, are one page each. */
export const pageOf = (path: string) => /^(?:\/jobs\/[^/]+|\/cluster(?=\/|$))/.exec(path)?.[0] ?? path;

/** The page New job, with the spec of a fork of `job`, or of one that resumes from its `checkpoint`. */
export function childAddress(job: string, checkpoint: string | null): string {
  const params = new URLSearchParams({ from: job });
  if (checkpoint !== null) params.set("checkpoint", checkpoint);
  return `/new?${params.toString()}`;
}
