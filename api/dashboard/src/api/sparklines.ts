/** The loss curves of many jobs, small enough for a list: one request for many of them. */

import { get } from "./http";

/** Bucket i is of the steps from i · width + 1 to (i + 1) · width; null where none of them had a loss. */
export interface Outline {
  width: number;
  low: readonly (number | null)[];
  high: readonly (number | null)[];
}

/** The control plane answers for so many at once. */
const AT_ONCE = 200;

/** Job → its outline, of those that told a step. Raises `Problem`. */
export async function getOutlines(jobs: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, Outline>> {
  const found = new Map<string, Outline>();
  for (let from = 0; from < jobs.length; from += AT_ONCE) {
    const { items } = await get("/v1/outlines", { query: { job: jobs.slice(from, from + AT_ONCE) }, signal });
    for (const { job, ...outline } of items) found.set(job, outline);
  }
  return found;
}
