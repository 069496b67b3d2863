/** The loss curves of many jobs, small enough for a list: one request for many of them. */

import { get } from "./http";

/** Bucket i is of the steps from i · width + 1 to (i + 1) · width; null where none of them had a loss. */
export interface LossSparkline {
  width: number;
  low: readonly (number | null)[];
  high: readonly (number | null)[];
}

/** Jobs of one request. */
const AT_ONCE = 200;

/** Job → its sparkline, of the jobs that have a step. Raises `Problem`. */
export async function getSparklines(jobs: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, LossSparkline>> {
  const found = new Map<string, LossSparkline>();
  for (let from = 0; from < jobs.length; from += AT_ONCE) {
    const { items } = await get("/v1/sparklines", { query: { job: jobs.slice(from, from + AT_ONCE) }, signal });
    for (const { job, ...sparkline } of items) found.set(job, sparkline);
  }
  return found;
}
