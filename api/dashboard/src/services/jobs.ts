/** Jobs as the dashboard speaks of them. `toJob` is the only place that knows the wire's names. */

import { address, get, post } from "./http";

export const STATES = [
  "queued",
  "placing",
  "starting",
  "running",
  "recovering",
  "pausing",
  "paused",
  "preempting",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
] as const;

/** Known states, and whatever a newer control plane may add. */
export type State = (typeof STATES)[number] | (string & {});

const FINAL: ReadonlySet<State> = new Set(["succeeded", "failed", "cancelled"]);

export const isFinal = (state: State) => FINAL.has(state);

export interface Progress {
  step: number;
  steps: number;
  loss: number | null;
  tokensPerSecond: number | null;
  etaSeconds: number | null;
  tokens: number | null;
}

/** What a job that ended well tells: losses in nats per token, times in seconds. */
export interface Summary {
  firstLoss: number | null;
  lastLoss: number | null;
  validationLoss: number | null;
  unigramLoss: number | null;
  tokens: number | null;
  tokensPerSecond: number | null;
  timeToFirstStep: number | null;
  checkpoint: string | null;
  steps: number | null;
}

export interface Job {
  id: string;
  name: string;
  state: State;
  reason: string | null;
  message: string | null;
  labels: Readonly<Record<string, string>>;
  spec: unknown;
  layout: string;
  batch: string;
  worldSize: number | null;
  device: string | null;
  attempt: number;
  restarts: number;
  createdAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
  progress: Progress | null;
  summary: Summary | null;
  checkpoint: string | null;
}

export interface JobPage {
  jobs: Job[];
  next: string | null;
}

export interface JobFilter {
  state: string;
  text: string;
}

interface ProgressWire {
  step: number;
  steps: number;
  loss?: number | null;
  tokens_per_s?: number | null;
  eta_s?: number | null;
  tokens?: number | null;
}

interface SummaryWire {
  first_loss?: number | null;
  last_loss?: number | null;
  validation_loss?: number | null;
  unigram_loss?: number | null;
  tokens?: number | null;
  tokens_per_s?: number | null;
  time_to_first_step_s?: number | null;
  checkpoint?: string | null;
  steps?: number | null;
}

export interface JobWire {
  id: string;
  name: string;
  state: string;
  reason?: string | null;
  message?: string | null;
  labels?: Record<string, string> | null;
  spec?: unknown;
  layout?: string | null;
  batch?: string | null;
  world_size?: number | null;
  device?: string | null;
  attempt?: number | null;
  restarts?: number | null;
  created_at: string;
  started_at?: string | null;
  finished_at?: string | null;
  progress?: ProgressWire | null;
  summary?: SummaryWire | null;
  checkpoint?: string | null;
}

const toDate = (text: string | null | undefined) => (text ? new Date(text) : null);

const toProgress = (wire: ProgressWire): Progress => ({
  step: wire.step,
  steps: wire.steps,
  loss: wire.loss ?? null,
  tokensPerSecond: wire.tokens_per_s ?? null,
  etaSeconds: wire.eta_s ?? null,
  tokens: wire.tokens ?? null,
});

export const toSummary = (wire: SummaryWire): Summary => ({
  firstLoss: wire.first_loss ?? null,
  lastLoss: wire.last_loss ?? null,
  validationLoss: wire.validation_loss ?? null,
  unigramLoss: wire.unigram_loss ?? null,
  tokens: wire.tokens ?? null,
  tokensPerSecond: wire.tokens_per_s ?? null,
  timeToFirstStep: wire.time_to_first_step_s ?? null,
  checkpoint: wire.checkpoint ?? null,
  steps: wire.steps ?? null,
});

export const toJob = (wire: JobWire): Job => ({
  id: wire.id,
  name: wire.name,
  state: wire.state,
  reason: wire.reason ?? null,
  message: wire.message ?? null,
  labels: wire.labels ?? {},
  spec: wire.spec ?? null,
  layout: wire.layout ?? "",
  batch: wire.batch ?? "",
  worldSize: wire.world_size ?? null,
  device: wire.device ?? null,
  attempt: wire.attempt ?? 0,
  restarts: wire.restarts ?? 0,
  createdAt: new Date(wire.created_at),
  startedAt: toDate(wire.started_at),
  finishedAt: toDate(wire.finished_at),
  progress: wire.progress ? toProgress(wire.progress) : null,
  summary: wire.summary ? toSummary(wire.summary) : null,
  checkpoint: wire.checkpoint ?? null,
});

export const jobPath = (id: string) => `/v1/jobs/${encodeURIComponent(id)}`;

/** One page, newest first. Raises `Problem`. */
export async function listJobs(filter: JobFilter, cursor: string | null, signal?: AbortSignal): Promise<JobPage> {
  const query = { state: filter.state, text: filter.text, limit: 50, cursor };
  const wire = (await get(address("/v1/jobs", query), signal)) as { items: JobWire[]; next: string | null };
  return { jobs: wire.items.map(toJob), next: wire.next };
}

/** Raises `Problem`. */
export async function getJob(id: string, signal?: AbortSignal): Promise<Job> {
  return toJob((await get(jobPath(id), signal)) as JobWire);
}

/** Harmless when told twice. Raises `Problem` (409 `job_ended`). */
export async function cancelJob(id: string): Promise<Job> {
  return toJob((await post(`${jobPath(id)}/cancel`)) as JobWire);
}
