/** Addresses of pages. */

/** A comparison shows at most this many jobs: more curves cannot be distinguished. */
export const MAX_COMPARED = 6;

export const compareAddress = (jobs: readonly string[]) => `/compare?${new URLSearchParams(jobs.map((job) => ["job", job])).toString()}`;

export const jobAddress = (id: string) => `/jobs/${encodeURIComponent(id)}`;

/** The page New job, with the spec of a fork of `job`, or of one that resumes from its `checkpoint`. */
export function childAddress(job: string, checkpoint: string | null): string {
  const params = new URLSearchParams({ from: job });
  if (checkpoint !== null) params.set("checkpoint", checkpoint);
  return `/new?${params.toString()}`;
}
