/** The one door to the control plane: same origin, JSON in and out, every refusal a `Problem`. */

export interface FieldError {
  field: string;
  message: string;
  remedy: string | null;
}

/** What the API answered instead of what was asked (`application/problem+json`), or that nobody answered (status 0). */
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

  /** Whether asking again later may help. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

interface ProblemWire {
  title?: string;
  code?: string;
  detail?: string;
  errors?: { field?: string | null; message?: string; remedy?: string | null }[] | null;
}

/** An answer that is not 2xx as a `Problem`; a proxy's plain page becomes one too. */
export async function toProblem(response: Response): Promise<Problem> {
  const wire = (await response.json().catch(() => ({}))) as ProblemWire;
  const errors = (wire.errors ?? []).map((e) => ({
    field: e.field ?? "",
    message: e.message ?? "",
    remedy: e.remedy ?? null,
  }));
  const title = wire.title ?? (response.statusText || `HTTP ${response.status}`);
  return new Problem(response.status, wire.code ?? "http_error", title, wire.detail ?? "", errors);
}

export const unreachable = () =>
  new Problem(0, "unreachable", "The control plane does not answer", "Trying again. It is started by: shardyard up");

const TIMEOUT_MS = 15_000;

async function call(method: string, path: string, signal?: AbortSignal): Promise<unknown> {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(path, {
    method,
    headers: { Accept: "application/json" },
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
  }).catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw unreachable();
  });
  if (!response.ok) throw await toProblem(response);
  return response.json();
}

/** Raises `Problem`. */
export const get = (path: string, signal?: AbortSignal) => call("GET", path, signal);

/** Raises `Problem`. */
export const post = (path: string) => call("POST", path);

/** `/path?a=1`, without the parameters that are null or empty. */
export function address(path: string, query: Record<string, string | number | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}
