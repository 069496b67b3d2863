/** The text that a job was submitted with, and the checkpoint with which it began. */

import { get, getText } from "./http";

export interface SubmittedSpec {
  format: "yaml" | "json";
  text: string;
  /** The layout of the stored spec is another one since. */
  layoutChanged: boolean;
}

export interface Submitted {
  /** Null if no text was kept. */
  spec: SubmittedSpec | null;
  /** Path of the checkpoint with which the job began; null: with none. */
  resume: string | null;
}

/** Raises `Problem`. */
export async function getSubmittedSpec(job: string, signal?: AbortSignal): Promise<Submitted> {
  const { format, text, layout_changed: layoutChanged, resume } = await get("/v1/jobs/{job}/submitted-spec", { path: { job }, signal });
  return { spec: text === null || format === null ? null : { format, text, layoutChanged }, resume };
}

/** The job as JSON, whose `spec` has every default and each number to its last digit. Raises `Problem`. */
export const getJobText = (job: string, signal?: AbortSignal): Promise<string> => getText("/v1/jobs/{job}", { path: { job }, signal });
