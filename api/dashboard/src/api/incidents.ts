/** A job's incidents. The control plane describes each in one paragraph. */

import { get, type Schema } from "./http";

export type Incident = Schema<"Incident">;

export interface IncidentPage {
  incidents: readonly Incident[];
  /** The place before which the next page begins. */
  next: number | null;
}

/** Newest first. Raises `Problem`. */
export async function listIncidents(id: string, before: number | null, limit: number, signal?: AbortSignal): Promise<IncidentPage> {
  const { items, next } = await get("/v1/jobs/{job}/incidents", { path: { job: id }, query: { newest: true, before, limit }, signal });
  return { incidents: items, next };
}
