/**
 * Server-sent events over fetch (the HTML standard's "event stream"), resumed without a gap or a double.
 *
 * Not `EventSource`: it hides heartbeats, so a half-dead connection never looks dead; it hides the status, so a
 * refusal looks like a broken network; and it takes no first `Last-Event-ID`.
 */

import { toProblem, unreachable } from "./http";

export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Text as it arrives → whole events. Comments (heartbeats) are counted, `retry` is skipped. */
export class FrameReader {
  comments = 0;
  #rest = "";
  #id = "";
  #event = "";
  #data: string[] = [];

  feed(chunk: string): Frame[] {
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const frames: Frame[] = [];
    for (const line of lines) {
      const frame = this.#take(line);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  #take(line: string): Frame | null {
    if (line === "") return this.#finish();
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (colon === 0) this.comments += 1;
    else if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id") this.#id = value;
    return null;
  }

  #finish(): Frame | null {
    const frame = { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") };
    const empty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    return empty ? null : frame;
  }
}

/** How the connection of a stream is. */
export type Connection = "connecting" | "live" | "lost" | "ended";

export interface Following {
  /** The stream starts after this id; null: at its beginning. */
  after: string | null;
  signal: AbortSignal;
  onFrame: (frame: Frame) => void;
  onConnection: (connection: Connection) => void;
  /** Milliseconds; heartbeats come every 10 s, so silence means that the connection is dead. */
  silence?: number;
  firstDelay?: number;
}

const SILENCE = 35_000;
const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;

/**
 * Follows `url` until its `end` event, and reconnects as often as needed. Raises `Problem` for a refusal that a retry
 * would not change. Returns when `signal` aborts.
 */
export async function follow(url: string, following: Following): Promise<void> {
  const { signal, onConnection, onFrame, silence = SILENCE, firstDelay = FIRST_DELAY } = following;
  const stopped = () => signal.aborted;
  let last = following.after;
  let delay = firstDelay;
  onConnection("connecting");
  while (!stopped()) {
    try {
      for await (const arrived of arrivals(url, last, signal, silence, () => { onConnection("live"); })) {
        if (arrived.serves) delay = firstDelay;
        for (const frame of arrived.frames) {
          if (frame.id) last = frame.id;
          if (frame.event === "end") {
            onConnection("ended");
            return;
          }
          onFrame(frame);
        }
      }
    } catch (error) {
      if (stopped()) return;
      if (error instanceof Refused) throw error.problem;
    }
    if (stopped()) return;
    onConnection("lost");
    await pause(delay, signal);
    delay = Math.min(delay * 2, LONGEST_DELAY);
  }
}

class Refused extends Error {
  constructor(readonly problem: Error) {
    super(problem.message);
  }
}

/** What a chunk brings. An API that accepts connections and then dies sends no more than the comment with which a stream begins. */
interface Arrived {
  frames: Frame[];
  serves: boolean;
}

/** Each chunk of one connection; raises when it breaks or falls silent. */
async function* arrivals(
  url: string,
  after: string | null,
  signal: AbortSignal,
  silence: number,
  onOpen: () => void,
): AsyncGenerator<Arrived> {
  const watch = new Watchdog(silence);
  try {
    const response = await fetch(url, {
      headers: { Accept: "text/event-stream", ...(after === null ? {} : { "Last-Event-ID": after }) },
      signal: AbortSignal.any([signal, watch.signal]),
    });
    if (!response.ok || response.body === null) {
      const problem = response.ok ? unreachable() : await toProblem(response);
      throw problem.retryable ? problem : new Refused(problem);
    }
    onOpen();
    const reader = new FrameReader();
    const decoder = new TextDecoder();
    for await (const chunk of chunks(response.body)) {
      watch.reset();
      const frames = reader.feed(decoder.decode(chunk, { stream: true }));
      yield { frames, serves: frames.length > 0 || reader.comments > 1 };
    }
  } finally {
    watch.stop();
  }
}

/** Not `for await` over the stream itself: Safari's ReadableStream is no async iterable. */
async function* chunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Aborts its signal if `reset` is not called for `ms`. */
class Watchdog {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly ms: number) {
    this.reset();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  reset(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#controller.abort(); }, this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
