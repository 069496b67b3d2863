/**
 * All requests to the control plane: same origin, JSON in and out, every error a `Problem`. Paths, parameters and responses have the
 * types of `api.d.ts`, which is generated from the control plane's OpenAPI description.
 */

import type { components, paths } from "./api";

export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface FieldError {
  field: string;
  message: string;
  remedy: string | null;
}

/** The API's error (`application/problem+json`), or a missing response (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly errors: readonly FieldError[] = [],
  ) {
    super(detail || title);
    this.name = "Problem";
  }

  /** The errors by field; without any, the detail alone. */
  get findings(): readonly FieldError[] {
    return this.errors.length > 0 ? this.errors : [{ field: "", message: this.detail, remedy: null }];
  }

  /** Whether a retry may succeed. */
  get retryable(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export const toFieldErrors = (wire: readonly Schema<"FieldError">[]): FieldError[] =>
  wire.map(({ field, message, remedy }) => ({ field: field ?? "", message, remedy: remedy ?? null }));

/** An answer that is not 2xx as a `Problem`; a proxy's plain page becomes one too. */
export async function toProblem(response: Response): Promise<Problem> {
  const wire = (await response.json().catch(() => ({}))) as Partial<Schema<"Problem">>;
  const errors = toFieldErrors(wire.errors ?? []);
  const title = wire.title ?? (response.statusText || `HTTP ${response.status}`);
  return new Problem(response.status, wire.code ?? "http_error", title, wire.detail ?? "", errors);
}

/** Whether another try would end alike. */
export const isRefused = (error: unknown): error is Problem => error instanceof Problem && !error.retryable;

/** Whether another try may succeed. */
export const isRetryable = (error: unknown): error is Problem => error instanceof Problem && error.retryable;

/** Whether the control plane was not reached, or the connection was lost before its answer was whole. */
export const isUnreached = (error: unknown): boolean => error instanceof Problem && error.code === "unreachable";

/** `asked`: it is no reading, which is repeated, but an action, which is not. */
export const unreachable = (asked = false) =>
  new Problem(0, "unreachable", "The control plane does not answer", `${asked ? "What was asked may not be done: try again." : "Retrying."} Start it with: shardyard up`);

/** The control plane was there, and gave no answer in time. */
const unanswered = (ms: number) =>
  new Problem(0, "timeout", "The control plane has not answered", `Nothing came in ${ms / 1000} s. What was asked may still be done.`);

const TIMEOUT_MS = 15_000;

/** For what may search for a layout or look at storage: `service/spec_files.py` gives up after 25 s. */
export const SEARCH_MS = 40_000;

type Value = string | number | boolean | null | undefined;

/** What an operation takes, by the API's own description. */
type Inputs<Operation> = Operation extends { parameters: { path?: infer Path; query?: infer Query } }
  ? { path: Path extends object ? Path : undefined; query: Query }
  : { path: undefined; query: undefined };

interface Limits {
  signal?: AbortSignal | undefined;
  /** How long it may take, if not 15 s. */
  timeoutMs?: number;
}

type Request<Operation> = (Inputs<Operation>["path"] extends undefined ? object : { path: Inputs<Operation>["path"] }) & Limits & {
  query?: { [Name in keyof NonNullable<Inputs<Operation>["query"]>]: NonNullable<Inputs<Operation>["query"]>[Name] };
};

type Answer<Operation> = Operation extends { responses: infer Answers }
  ? { [Status in keyof Answers & (200 | 201 | 202)]: Answers[Status] extends { content: { "application/json": infer Body } } ? Body : unknown }[keyof Answers & (200 | 201 | 202)]
  : never;

type With<Method extends string> = { [Path in keyof paths]: paths[Path] extends Record<Method, { responses: unknown }> ? Path : never }[keyof paths];

/** The body of a POST, a PUT or a PATCH. */
export interface Body {
  type: "application/json" | "application/yaml";
  text: string;
  headers?: Record<string, string>;
}

/** Raises `Problem`. */
export function get<Path extends With<"get">>(path: Path, request: Request<paths[Path]["get"]>): Promise<Answer<paths[Path]["get"]>> {
  return call("GET", fill(path, request), request) as Promise<Answer<paths[Path]["get"]>>;
}

/** The response as the text that it is, in which no number is rounded. Raises `Problem`. */
export function getText<Path extends With<"get">>(path: Path, request: Request<paths[Path]["get"]>): Promise<string> {
  return call("GET", fill(path, request), request, undefined, (response) => response.text()) as Promise<string>;
}

/** Raises `Problem`. */
export function post<Path extends With<"post">>(path: Path, request: Request<paths[Path]["post"]>, body?: Body): Promise<Answer<paths[Path]["post"]>> {
  return call("POST", fill(path, request), request, body) as Promise<Answer<paths[Path]["post"]>>;
}

/** Raises `Problem`. */
export function put<Path extends With<"put">>(path: Path, request: Request<paths[Path]["put"]>, body: Body): Promise<Answer<paths[Path]["put"]>> {
  return call("PUT", fill(path, request), request, body) as Promise<Answer<paths[Path]["put"]>>;
}

/** Raises `Problem`. */
export function patch<Path extends With<"patch">>(path: Path, request: Request<paths[Path]["patch"]>, body: Body): Promise<Answer<paths[Path]["patch"]>> {
  return call("PATCH", fill(path, request), request, body) as Promise<Answer<paths[Path]["patch"]>>;
}

/** Raises `Problem`. */
export function remove<Path extends With<"delete">>(path: Path, request: Request<paths[Path]["delete"]>): Promise<Answer<paths[Path]["delete"]>> {
  return call("DELETE", fill(path, request), request) as Promise<Answer<paths[Path]["delete"]>>;
}

const asJson = (response: Response): Promise<unknown> => response.json();

async function call(method: string, address: string, { signal, timeoutMs = TIMEOUT_MS }: Limits, body?: Body, read = asJson): Promise<unknown> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const failed = (error: unknown): never => {
    if (signal?.aborted) throw error;
    throw timeout.aborted ? unanswered(timeoutMs) : unreachable(method !== "GET");
  };
  const response = await fetch(address, {
    method,
    headers: { Accept: "application/json", ...(body && { "Content-Type": body.type, ...body.headers }) },
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    ...(body && { body: body.text }),
  }).catch(failed);
  if (!response.ok) throw await toProblem(response);
  return await read(response).catch(failed); // it may break off after its headers
}

/** `/v1/jobs/{job}` with its parts filled in, and the query's parameters that are not null, undefined or empty. */
export function fill(template: string, { path, query }: { path?: object | undefined; query?: object | undefined }): string {
  const parts = (path ?? {}) as Record<string, Value>;
  const address = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(parts[name])));
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}) as [string, Value | readonly Value[]][]) {
    for (const one of Array.isArray(value) ? (value as readonly Value[]) : [value as Value]) {
      if (one !== null && one !== undefined && one !== "") params.append(name, String(one));
    }
  }
  const text = params.toString();
  return text ? `${address}?${text}` : address;
}
