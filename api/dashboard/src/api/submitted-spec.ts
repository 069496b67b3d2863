/** The text that a job was submitted with. */

import { get } from "./http";

export interface SubmittedSpec {
  format: "yaml" | "json";
  text: string;
  /** The layout of the stored spec is another one since. */
  layoutChanged: boolean;
}

/** Null if no text was kept. Raises `Problem`. */
export async function getSubmittedSpec(job: string, signal?: AbortSignal): Promise<SubmittedSpec | null> {
  const wire = await get("/v1/jobs/{job}/submitted-spec", { path: { job }, signal });
  return wire.text === null || wire.format === null ? null : { format: wire.format, text: wire.text, layoutChanged: wire.layout_changed };
}
