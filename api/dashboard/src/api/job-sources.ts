/** What the sources of a job's `files` had when the job first read them. */

import { get } from "./http";

export interface JobSource {
  target: string;
  source: string;
  /** Commit of the Hugging Face Hub. */
  revision: string | null;
  /** Of names, sizes and checksums. Null, as what follows, for a path that all nodes see. */
  digest: string | null;
  files: number | null;
  bytes: number | null;
}

/** Empty before the job has read them. Raises `Problem`. */
export async function getJobSources(id: string, signal?: AbortSignal): Promise<readonly JobSource[]> {
  return (await get("/v1/jobs/{job}", { path: { job: id }, signal })).files;
}
