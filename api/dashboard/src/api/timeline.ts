/** A job's timeline: its states with their times, and what happened in them. Times are unix seconds. */

import { get, type Schema } from "./http";

export type Span = Schema<"StateSpan">;
export type Mark = Schema<"TimelineEvent">;
export type Timeline = Schema<"Timeline">;

/** Raises `Problem`. */
export const getTimeline = (id: string, signal?: AbortSignal): Promise<Timeline> => get("/v1/jobs/{job}/timeline", { path: { job: id }, signal });
