/** What the cluster was used for: over time, by user, what waits, runs and ran. */

import type { Drawn } from "./curves";
import { get, type Schema } from "./http";
import { withGaps } from "./system";

export const RANGES = ["hour", "day", "week"] as const;

export type Range = (typeof RANGES)[number];

export interface UseLine {
  label: string;
  points: readonly Drawn[];
  last: number | null;
}

/** Lines of one chart. */
export interface UseChart {
  /** Of a node's metric: its name. Else what the lines are of, such as `cuda` or `user cuda`. */
  name: string;
  unit: string;
  lines: readonly UseLine[];
}

/** Number of buckets without a sample after which a line is interrupted. */
const GAP = 3;

function lineOf(label: string, starts: readonly number[], width: number, values: readonly (number | null)[]): UseLine {
  const points = starts.map((start, at) => ({ x: start + width / 2, y: values[at] ?? null, low: null, high: null }));
  return { label, points: withGaps(points, GAP * width), last: values.findLast((value) => value !== null) ?? null };
}

/** Lines of devices by kind, then of users and teams by kind. */
export async function getClusterUse(range: Range, signal?: AbortSignal): Promise<UseChart[]> {
  const { width, starts, devices, holders } = await get("/v1/cluster/use", { query: { range }, signal });
  const line = (label: string, values: readonly (number | null)[]) => lineOf(label, starts, width, values);
  const ofDevices = devices.map(({ kind, used, free, cordoned }) => ({
    name: kind,
    unit: "devices",
    lines: [line("In use", used), line("Free", free), line("Cordoned", cordoned)],
  }));
  const kinds = [...new Set(holders.map(({ by, kind }) => `${by} ${kind}`))];
  const ofHolders = kinds.map((name) => ({
    name,
    unit: "devices",
    lines: holders.filter(({ by, kind }) => `${by} ${kind}` === name).map((one) => line(one.name === "" ? "Others" : one.name, one.used)),
  }));
  return [...ofDevices, ...ofHolders];
}

/** A chart for each metric of a machine; the GPUs are lines of one. */
export async function getNodeUse(node: string, range: Range, signal?: AbortSignal): Promise<UseChart[]> {
  const { width, starts, curves } = await get("/v1/nodes/{node}/use", { path: { node }, query: { range }, signal });
  const names = [...new Set(curves.map(({ name }) => name))];
  return names.map((name) => {
    const mine = curves.filter((curve) => curve.name === name);
    const lines = mine.map(({ gpu, mean }) => lineOf(gpu === null ? "Machine" : `GPU ${gpu}`, starts, width, mean));
    return { name, unit: mine[0]?.unit ?? "", lines };
  });
}

export interface DeviceTime {
  actor: string;
  device: string;
  jobs: number;
  seconds: number;
}

export async function listDeviceTimes(range: Range, signal?: AbortSignal): Promise<DeviceTime[]> {
  const { items } = await get("/v1/cluster/time", { query: { range }, signal });
  return items.map(({ device_s, ...rest }) => ({ ...rest, seconds: device_s }));
}

export interface Page<T> {
  items: readonly T[];
  next: string | null;
}

export interface PastAttempt {
  job: string;
  name: string;
  actor: string;
  state: string;
  attempt: number;
  device: string;
  devices: number;
  since: Date;
  until: Date;
  outcome: string | null;
  seconds: number;
}

const toAttempt = ({ device_s, since, until, ...rest }: Schema<"PastAttempt">): PastAttempt => ({ ...rest, since: new Date(since), until: new Date(until), seconds: device_s });

/** Attempts that ended in the range, on a machine or, with null, on all. */
export async function listAttempts(range: Range, node: string | null, after: string | null, signal?: AbortSignal): Promise<Page<PastAttempt>> {
  const { items, next } = await get("/v1/cluster/attempts", { query: { range, node, after, limit: 50 }, signal });
  return { items: items.map(toAttempt), next };
}

export interface NodeChange {
  at: Date;
  node: string;
  host: string;
  kind: Schema<"NodeChange">["kind"];
  actor: string | null;
  message: string;
}

export async function listChanges(range: Range, node: string | null, after: string | null, signal?: AbortSignal): Promise<Page<NodeChange>> {
  const { items, next } = await get("/v1/cluster/changes", { query: { range, node, after, limit: 50 }, signal });
  return { items: items.map(({ at, ...rest }) => ({ ...rest, at: new Date(at) })), next };
}

export interface QueuedJob {
  position: number;
  job: string;
  name: string;
  actor: string;
  device: string;
  ranks: number;
  spares: number;
  since: Date;
  retryAt: Date | null;
  message: string | null;
}

export interface QueuePage extends Page<QueuedJob> {
  total: number;
}

export async function getQueue(after: string | null, signal?: AbortSignal): Promise<QueuePage> {
  const { items, next, total } = await get("/v1/queue", { query: { after, limit: 50 }, signal });
  return {
    next,
    total,
    items: items.map(({ since, retry_at, ...rest }) => ({ ...rest, since: new Date(since), retryAt: retry_at === null ? null : new Date(retry_at) })),
  };
}

export interface RunningJob {
  job: string;
  name: string;
  actor: string;
  state: string;
  device: string | null;
  devices: number;
  nodes: number;
  since: Date;
}

export async function listRunning(after: string | null, signal?: AbortSignal): Promise<Page<RunningJob>> {
  const { items, next } = await get("/v1/queue/running", { query: { after, limit: 50 }, signal });
  return { items: items.map(({ since, ...rest }) => ({ ...rest, since: new Date(since) })), next };
}
