/** Profiles of running ranks, and their files. */

import { fill, get, post, type Schema } from "./http";

export type ProfileKind = Schema<"ProfileRequest">["kind"];

export interface Profile {
  id: string;
  rank: number;
  kind: string;
  seconds: number;
  state: "open" | "done" | "failed";
  message: string | null;
  requestedAt: Date;
  /** Where its file is; null: it has none. */
  address: string | null;
}

const toProfile = (wire: Schema<"Profile">): Profile => ({
  id: wire.id,
  rank: wire.rank,
  kind: wire.kind,
  seconds: wire.seconds,
  state: wire.state as Profile["state"],
  message: wire.message,
  requestedAt: new Date(wire.asked_at),
  address: wire.file === null ? null : fill("/v1/jobs/{job}/artifacts/", { path: { job: wire.job } }) + wire.file.split("/").map(encodeURIComponent).join("/"),
});

/** The same key is one profile. Raises `Problem` (409 `job_not_running`, `too_many_profiles`). */
export async function profileRank(job: string, rank: number, kind: ProfileKind, key: string): Promise<Profile> {
  const headers = { "Idempotency-Key": key };
  const text = JSON.stringify({ rank, kind });
  return toProfile(await post("/v1/jobs/{job}/profiles", { path: { job } }, { type: "application/json", text, headers }));
}

/** The newest, newest first. Raises `Problem`. */
export async function listProfiles(job: string, limit: number, signal?: AbortSignal): Promise<Profile[]> {
  return (await get("/v1/jobs/{job}/profiles", { path: { job }, query: { limit }, signal })).items.map(toProfile);
}
