/** Jobs as the dashboard has them. `toJob` is the only place that knows the wire's names. */

import { type Body, get, patch, post, remove, type Schema, SEARCH_MS } from "./http";

export const STATES = [
  "queued",
  "placing",
  "starting",
  "running",
  "recovering",
  "pausing",
  "paused",
  "resharding",
  "stopping",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
] as const;

/** Known states, and whatever a newer control plane may add. */
export type State = (typeof STATES)[number] | (string & {});

export interface Progress {
  step: number;
  steps: number;
  loss: number | null;
  tokensPerSecond: number | null;
  etaSeconds: number | null;
  tokens: number | null;
}

/** The summary of a job that succeeded: losses in nats per token, times in seconds. */
export interface Summary {
  firstLoss: number | null;
  /** The mean of the last `lastSteps` steps. */
  lastLoss: number | null;
  lastSteps: number | null;
  validationLoss: number | null;
  unigramLoss: number | null;
  tokens: number | null;
  tokensPerSecond: number | null;
  timeToFirstStep: number | null;
  checkpoint: string | null;
  /** The Hugging Face folder that the job wrote. */
  export: string | null;
  steps: number | null;
}

/** What keeps a job alive, used and allowed. */
export interface Budget {
  name: string;
  /** What it is for. */
  about: string;
  used: number;
  limit: number;
}

/** What a job has used of the time for which it may hold devices, in seconds. */
export interface TimeLimit {
  limit: number;
  used: number;
  /** null while it holds none: then its time does not run. */
  endsAt: Date | null;
}

/** What a job's certificate says, in short. */
export interface JobCertificate {
  /** Whether the layout and one process computed the same. */
  equal: boolean;
  /** The layout that was trained. */
  layout: string;
  /** What the one process did besides training, such as `rounds the same blocks`. */
  extra: string | null;
  /** Fingerprint of the key that signed it. */
  key: string;
}

export interface Job {
  id: string;
  name: string;
  state: State;
  reason: string | null;
  message: string | null;
  labels: Readonly<Record<string, string>>;
  /** Plain text of several lines, perhaps empty. */
  notes: string;
  spec: unknown;
  /** Name of the user who submitted it. */
  user: string;
  layout: string;
  /** For which devices the layout advisor chose the layout, and the predicted time of a step. */
  layoutChoice: string | null;
  batch: string;
  worldSize: number | null;
  device: string | null;
  attempt: number;
  restarts: number;
  budgets: readonly Budget[];
  /** null without one, and in lists of jobs. */
  timeLimit: TimeLimit | null;
  createdAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
  /** Device-seconds of its attempts up to now; null before its first attempt, and in the answer to a change. */
  deviceSeconds: number | null;
  progress: Progress | null;
  summary: Summary | null;
  checkpoint: string | null;
  /** Id of the job whose checkpoint it began with, or that it was forked from. */
  parent: string | null;
  /** Ids of the job that it retries, and of the newest job that retries it. */
  retryOf: string | null;
  retriedBy: string | null;
  /** null in lists of jobs. */
  certificate: JobCertificate | null;
  /** It cannot be deleted, and does not age. */
  pinned: boolean;
  /** It can be restored until it is removed. */
  deletedAt: Date | null;
  /** Who deleted it; `retention`: it was deleted by its age. */
  deletedBy: string | null;
}

export interface JobPage {
  jobs: Job[];
  next: string | null;
}

/** An order of the API: a word of `job-orders.ts`, `-` before it for the largest first. */
export type Sort = string;

/** Empty text: all. `label` is `key=value`. `deleted`: `true` for deleted jobs alone, else empty. */
export interface JobFilter {
  state: string;
  text: string;
  label: string;
  deleted: string;
  sort: Sort;
}

export const NO_FILTER: JobFilter = { state: "", text: "", label: "", deleted: "", sort: "newest" };

export type JobWire = Schema<"Job">;

const toDate = (text: string | null | undefined) => (text ? new Date(text) : null);

const toProgress = (wire: Schema<"Progress">): Progress => ({
  step: wire.step,
  steps: wire.steps,
  loss: wire.loss ?? null,
  tokensPerSecond: wire.tokens_per_s ?? null,
  etaSeconds: wire.eta_s ?? null,
  tokens: wire.tokens ?? null,
});

export const toSummary = (wire: Schema<"Summary"> | Schema<"SummaryEvent">): Summary => ({
  firstLoss: wire.first_loss ?? null,
  lastLoss: wire.last_loss ?? null,
  lastSteps: wire.last_steps ?? null,
  validationLoss: wire.validation_loss ?? null,
  unigramLoss: wire.unigram_loss ?? null,
  tokens: wire.tokens ?? null,
  tokensPerSecond: wire.tokens_per_s ?? null,
  timeToFirstStep: wire.time_to_first_step_s ?? null,
  checkpoint: wire.checkpoint ?? null,
  export: wire.export ?? null,
  steps: wire.steps ?? null,
});

const toBudgets = ({ repairs, restarts, retries }: Schema<"Budgets">): Budget[] => [
  { name: "Repairs", about: "in place, in this attempt", ...repairs },
  { name: "Restarts", about: "new attempts after machine faults", ...restarts },
  { name: "Retries", about: "new attempts after exceptions in the training code", ...retries },
];

const toTimeLimit = (wire: Schema<"TimeLimit">): TimeLimit => ({ limit: wire.limit_s, used: wire.used_s, endsAt: toDate(wire.ends_at) });

/** The label that names the parent of a job, for a fork, which has no checkpoint of its parent. */
export const PARENT_LABEL = "parent";

export const toJob = (wire: JobWire): Job => ({
  id: wire.id,
  name: wire.name,
  state: wire.state,
  reason: wire.reason ?? null,
  message: wire.message ?? null,
  labels: wire.labels,
  notes: wire.notes,
  spec: wire.spec,
  user: wire.actor,
  layout: wire.layout,
  layoutChoice: wire.layout_choice ?? null,
  batch: wire.batch,
  worldSize: wire.world_size,
  device: wire.device ?? null,
  attempt: wire.attempt,
  restarts: wire.restarts,
  budgets: toBudgets(wire.budgets),
  timeLimit: wire.time_limit ? toTimeLimit(wire.time_limit) : null,
  createdAt: new Date(wire.created_at),
  startedAt: toDate(wire.started_at),
  finishedAt: toDate(wire.finished_at),
  deviceSeconds: wire.device_s ?? null,
  progress: wire.progress ? toProgress(wire.progress) : null,
  summary: wire.summary ? toSummary(wire.summary) : null,
  checkpoint: wire.checkpoint ?? null,
  parent: wire.parent ?? wire.labels[PARENT_LABEL] ?? null,
  retryOf: wire.retry_of ?? null,
  retriedBy: wire.retried_by ?? null,
  certificate: wire.certificate,
  pinned: wire.pinned,
  deletedAt: toDate(wire.deleted_at),
  deletedBy: wire.deleted_by ?? null,
});

/** Of the API. */
export const jobPath = (id: string) => `/v1/jobs/${encodeURIComponent(id)}`;

/** Of the page that shows a job's certificate. */
export const certificatePath = (id: string) => `${jobPath(id)}/certificate/page`;

/** One page in the filter's order. Raises `Problem`. */
export async function listJobs(filter: JobFilter, cursor: string | null, signal?: AbortSignal, limit = 50): Promise<JobPage> {
  const { state, text, label, deleted, sort } = filter;
  // The state may come from the address; the API refuses an unknown one.
  const query = { state: state as Schema<"State">, text, label: label === "" ? [] : [label], ...(deleted === "true" && { deleted: true }), sort, limit, cursor };
  const wire = await get("/v1/jobs", { query, signal });
  return { jobs: wire.items.map(toJob), next: wire.next };
}

/** Raises `Problem`. */
export async function getJob(id: string, signal?: AbortSignal): Promise<Job> {
  return toJob(await get("/v1/jobs/{job}", { path: { job: id }, signal }));
}

/** Labels replace all of the job's. Raises `Problem` with the fields and their remedies. */
export async function editJob(id: string, changes: Partial<Pick<Job, "name" | "labels" | "notes" | "pinned">>): Promise<Job> {
  const body: Body = { type: "application/json", text: JSON.stringify(changes) };
  return toJob(await patch("/v1/jobs/{job}", { path: { job: id } }, body));
}

/** Does nothing the second time. Raises `Problem` (409 `job_ended`). */
export async function pauseJob(id: string): Promise<Job> {
  return toJob(await post("/v1/jobs/{job}/pause", { path: { job: id } }));
}

/** Does nothing the second time. Raises `Problem` (409 `job_ended`, `job_pausing`). */
export async function resumeJob(id: string): Promise<Job> {
  return toJob(await post("/v1/jobs/{job}/resume", { path: { job: id } }));
}

/** Does nothing the second time. Raises `Problem` (409 `job_ended`). */
export async function cancelJob(id: string): Promise<Job> {
  return toJob(await post("/v1/jobs/{job}/cancel", { path: { job: id } }));
}

/** The new job. The same key makes one. Raises `Problem` (409 `job_not_ended`, `job_succeeded`). */
export async function retryJob(id: string, key: string): Promise<Job> {
  return toJob(await post("/v1/jobs/{job}/retry", { path: { job: id }, timeoutMs: SEARCH_MS }, { ...yaml(""), headers: { "Idempotency-Key": key } }));
}

/** Does nothing the second time. Raises `Problem` (409 `job_not_ended`, `job_pinned`, `job_in_use`). */
export async function deleteJob(id: string): Promise<Job> {
  return toJob(await remove("/v1/jobs/{job}", { path: { job: id } }));
}

/** The id of the newest deleted job of this name. What is none is an id itself. Raises `Problem`. */
export async function deletedId(name: string): Promise<string> {
  const { items } = await get("/v1/jobs", { query: { name, deleted: true, limit: 1 } });
  return items[0]?.id ?? name;
}

/** Does nothing the second time. Raises `Problem` (410 `job_deleted` if it is being removed). */
export async function undeleteJob(id: string): Promise<Job> {
  return toJob(await post("/v1/jobs/{job}/undelete", { path: { job: id } }));
}

/** Raises `Problem` with the layout's fields and their remedies, and `job_ended`. */
export async function reshardJob(id: string, layout: Readonly<Record<string, unknown>>): Promise<Job> {
  const body: Body = { type: "application/json", text: JSON.stringify({ layout }) };
  return toJob(await post("/v1/jobs/{job}/reshard", { path: { job: id }, timeoutMs: SEARCH_MS }, body));
}

const yaml = (text: string, headers: Record<string, string> = {}): Body => ({ type: "application/yaml", text, headers });

/** The same key and text make one job, however often they are sent. Raises `Problem` with the fields and their remedies. */
export async function submitJob(text: string, key: string): Promise<Job> {
  return toJob(await post("/v1/jobs", { timeoutMs: SEARCH_MS }, yaml(text, { "Idempotency-Key": key })));
}

/** What would run, without storing anything. Raises `Problem` as `submitJob` does. */
export const previewJob = (text: string, signal?: AbortSignal): Promise<Schema<"Preview">> => post("/v1/jobs/preview", { signal, timeoutMs: SEARCH_MS }, yaml(text));
