/** Users' secrets. No answer has a value. */

import { get, put, remove, type Schema } from "./http";

export interface Secret {
  name: string;
  actor: string;
  updatedAt: Date;
}

const toSecret = (wire: Schema<"Secret">): Secret => ({
  name: wire.name,
  actor: wire.actor,
  updatedAt: new Date(wire.updated_at),
});

/** Raises `Problem`. */
export async function listSecrets(signal?: AbortSignal): Promise<Secret[]> {
  return (await get("/v1/secrets", { signal })).items.map(toSecret);
}

/** Raises `Problem`. */
export async function setSecret(name: string, value: string): Promise<Secret> {
  return toSecret(await put("/v1/secrets/{name}", { path: { name } }, { type: "application/json", text: JSON.stringify({ value }) }));
}

/** Raises `Problem`. */
export async function removeSecret(name: string): Promise<Secret[]> {
  return (await remove("/v1/secrets/{name}", { path: { name } })).items.map(toSecret);
}
