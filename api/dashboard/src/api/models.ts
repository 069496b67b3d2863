/** The model registry: models, versions, aliases, and what was changed. */

import { type Body, get, post, put, remove, type Schema } from "./http";

export interface Alias {
  name: string;
  version: number;
  actor: string;
  setAt: Date;
}

export interface Model {
  name: string;
  /** Number of the newest version; null if all were deleted. */
  latest: number | null;
  aliases: readonly Alias[];
  actor: string;
  createdAt: Date;
}

export interface Version {
  model: string;
  number: number;
  job: string;
  step: number | null;
  /** Name of the logged file; null for a checkpoint. */
  artifact: string | null;
  digest: string | null;
  state: "present" | "corrupt" | "deleted";
  pinned: boolean;
  metrics: Readonly<Record<string, number | null>>;
  notes: string;
  aliases: readonly string[];
  actor: string;
  createdAt: Date;
}

export interface Change {
  position: number;
  kind: string;
  version: number;
  alias: string | null;
  before: number | null;
  actor: string;
  at: Date;
}

const toAlias = (wire: Schema<"ModelAlias">): Alias => ({ name: wire.alias, version: wire.version, actor: wire.actor, setAt: new Date(wire.set_at) });

const toModel = (wire: Schema<"Model">): Model => ({
  name: wire.name,
  latest: wire.latest,
  aliases: wire.aliases.map(toAlias),
  actor: wire.actor,
  createdAt: new Date(wire.created_at),
});

const toVersion = ({ created_at, ...wire }: Schema<"ModelVersion">): Version => ({ ...wire, createdAt: new Date(created_at) });

/** By name. Raises `Problem`. */
export async function listModels(after: string | null, signal?: AbortSignal): Promise<{ models: Model[]; next: string | null }> {
  const { items, next } = await get("/v1/models", { query: { after }, signal });
  return { models: items.map(toModel), next };
}

/** Raises `Problem`. */
export async function getModel(model: string, signal?: AbortSignal): Promise<Model> {
  return toModel(await get("/v1/models/{model}", { path: { model }, signal }));
}

/** Newest first. Raises `Problem`. */
export async function listVersions(model: string, before: number | null, signal?: AbortSignal): Promise<{ versions: Version[]; next: number | null }> {
  const { items, next } = await get("/v1/models/{model}/versions", { path: { model }, query: { before }, signal });
  return { versions: items.map(toVersion), next };
}

/** Newest first. Raises `Problem`. */
export async function listChanges(model: string, before: number | null, signal?: AbortSignal): Promise<{ changes: Change[]; next: number | null }> {
  const { items, next } = await get("/v1/models/{model}/history", { path: { model }, query: { before }, signal });
  return { changes: items.map((one) => ({ ...one, at: new Date(one.at) })), next };
}

/** The same key is one version. Raises `Problem`. */
export async function createVersion(model: string, wanted: { job: string; step: number; notes: string }, key: string): Promise<Version> {
  return toVersion(await post("/v1/models/{model}/versions", { path: { model } }, json(wanted, { "Idempotency-Key": key })));
}

/** Raises `Problem`. */
export async function deleteVersion(model: string, version: number): Promise<void> {
  await remove("/v1/models/{model}/versions/{version}", { path: { model, version } });
}

/** `expected`: the version that it names now, 0 for none. Raises `Problem` (409 `alias_moved`). */
export async function setAlias(model: string, alias: string, version: number, expected: number): Promise<void> {
  await put("/v1/models/{model}/aliases/{alias}", { path: { model, alias } }, json({ version, expected }));
}

/** Raises `Problem` (409 `alias_moved`). */
export async function removeAlias(model: string, alias: string, expected: number): Promise<void> {
  await remove("/v1/models/{model}/aliases/{alias}", { path: { model, alias }, query: { expected } });
}

const json = (value: unknown, headers?: Record<string, string>): Body => ({ type: "application/json", text: JSON.stringify(value), ...(headers && { headers }) });
