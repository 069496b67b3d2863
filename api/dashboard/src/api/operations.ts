/** Operations on a job's checkpoints (verify, export, pin) and their state. */

import { get, post, type Schema } from "./http";

export type Operation = Schema<"Operation">;

export const DTYPES = ["fp32", "bf16", "fp16", "fp64"] as const;
export type Dtype = (typeof DTYPES)[number];

/** Newest first, the last hundred. Raises `Problem`. */
export async function listOperations(job: string, signal?: AbortSignal): Promise<readonly Operation[]> {
  return (await get("/v1/jobs/{job}/operations", { path: { job }, query: { limit: 100 }, signal })).items;
}

/** The same key is one operation. Raises `Problem`. */
export function verifyCheckpoint(job: string, position: number, key: string): Promise<Operation> {
  return post("/v1/jobs/{job}/checkpoints/{position}/verify", { path: { job, position } }, nothing(key));
}

/** Keep it, whatever the job saves later, or no longer. The same key is one operation. Raises `Problem`. */
export function pinCheckpoint(job: string, position: number, pinned: boolean, key: string): Promise<Operation> {
  const path = { job, position };
  return pinned ? post("/v1/jobs/{job}/checkpoints/{position}/pin", { path }, nothing(key)) : post("/v1/jobs/{job}/checkpoints/{position}/unpin", { path }, nothing(key));
}

/** Into the job's own folder. The same key is one operation. Raises `Problem` (409 `export_underway`). */
export function exportCheckpoint(job: string, position: number, dtype: Dtype, key: string): Promise<Operation> {
  return post("/v1/jobs/{job}/checkpoints/{position}/export", { path: { job, position }, query: { dtype } }, nothing(key));
}

const nothing = (key: string) => ({ type: "application/json", text: "", headers: { "Idempotency-Key": key } }) as const;
