/** The address of a comparison. */

/** More curves than that cannot be told apart. */
export const MOST = 6;

export const compareAddress = (jobs: readonly string[]) => `/compare?${new URLSearchParams(jobs.map((job) => ["job", job])).toString()}`;
