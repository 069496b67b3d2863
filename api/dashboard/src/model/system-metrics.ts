/** How system metrics are named and written on pages. */

import { bytes, number } from "./format";

/** In the order in which they are shown; a metric that is not among them is not shown. */
export const TITLES: Readonly<Record<string, string>> = {
  "node/cpu": "CPUs of the node (%)",
  "node/memory_used": "Memory in use",
  "node/memory_available": "Memory available",
  "node/memory_limit_used": "Memory that counts against the cgroup’s limit",
  "node/disk_read": "Read from disks",
  "node/disk_write": "Written to disks",
  "node/disk_full": "Fill of the data folder’s disk (%)",
  "node/network_receive": "Received by the network",
  "node/network_send": "Sent to the network",
  "rank/cpu": "CPU of the rank’s processes (% of one)",
  "rank/memory": "Resident memory of the rank’s processes",
  "rank/gpu_utilization": "GPU utilization (%)",
  "rank/gpu_memory": "GPU memory in use",
  "rank/gpu_power": "GPU power (W)",
  "rank/gpu_temperature": "GPU temperature (°C)",
  "rank/gpu_clock": "GPU clock (MHz)",
  "rank/gpu_ecc_errors": "Uncorrected ECC errors",
  "rank/gpu_xid": "Newest Xid error",
  "rank/gpu_lost": "GPU lost (1)",
  "rank/nvlink_send": "Sent over NVLink",
  "rank/nvlink_receive": "Received over NVLink",
};

/** The metrics of `known` that are of nodes, and those that are of ranks, in their order. */
export function systemGroups(known: readonly string[]): readonly { name: string; metrics: readonly string[] }[] {
  const of = (kind: string) => Object.keys(TITLES).filter((name) => name.startsWith(`${kind}/`) && known.includes(name));
  return [{ name: "Nodes", metrics: of("node") }, { name: "Ranks", metrics: of("rank") }].filter(({ metrics }) => metrics.length > 0);
}

const bytesPerSecond = (value: number | null) => (value === null ? bytes(value) : `${bytes(value)}/s`);

/** How values of this unit are written. */
export const formatOf = (unit: string) => (unit === "bytes" ? bytes : unit === "bytes/s" ? bytesPerSecond : number);

const POLL_MS = 5000;
/** Wide buckets change rarely. The newest one grows, so a chart is never older than this. */
const OLDEST_MS = 60_000;
/** An answer about a thousand ranks takes a second or more: a chart asks for a tenth of the time at most. */
const REST = 10;

/** How long to wait before the same samples are read again. `width`: seconds of a bucket. `tookMs`: what the last answer took. */
export const pollMs = (width: number, tookMs: number) => Math.max(POLL_MS, Math.min(width * 1000, OLDEST_MS), tookMs * REST);

const HOURS_12 = 12 * 3600;

const clock = (at: number | null) => inTime(at, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = (at: number | null) => inTime(at, { weekday: "short", hour: "2-digit", minute: "2-digit" });
const date = (at: number | null) => inTime(at, { day: "numeric", month: "short" });
const moment = (at: number | null) => inTime(at, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

const inTime = (at: number | null, how: Intl.DateTimeFormatOptions) => (at === null ? "–" : new Date(at * 1000).toLocaleString("en-GB", how));

const HOURS = { name: "Time", format: clock, onAxis: clock };
const DAYS = { name: "Time", format: day, onAxis: day };
const WEEKS = { name: "Time", format: moment, onAxis: date };

/**
 * How times (unix seconds) are written along a range of this many seconds: in the legend, and shorter on the axis. A chart is built
 * again for another object, so there is one for all ranges that are written alike.
 */
export const alongTime = (seconds: number) => (seconds <= HOURS_12 ? HOURS : seconds <= 12 * HOURS_12 ? DAYS : WEEKS);

/** Seconds from the first to the last point of all lines. */
export function spanOf(lines: readonly { points: readonly { x: number }[] }[]): number {
  const ends = lines.flatMap(({ points }) => [...points.slice(0, 1), ...points.slice(-1)].map(({ x }) => x));
  return ends.length === 0 ? 0 : Math.max(...ends) - Math.min(...ends);
}
