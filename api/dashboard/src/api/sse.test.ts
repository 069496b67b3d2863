// @vitest-environment node
import http from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { Problem } from "./http";
import { type Connection, follow, type Frame, FrameReader } from "./sse";

const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** A server whose nth connection is served by the nth handler (the last one for all that follow). */
async function serve(...handlers: http.RequestListener[]): Promise<string> {
  let connection = 0;
  const server = http.createServer((request, response) => {
    handlers[Math.min(connection++, handlers.length - 1)]?.(request, response);
  });
  closing.push(() => {
    server.close();
    server.closeAllConnections();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`;
}

const frame = (n: number) => `id: 0.${n}.0\nevent: step\ndata: {"step": ${n}}\n\n`;
const END = "event: end\ndata: {}\n\n";

function start(response: http.ServerResponse): void {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
}

const SILENCE = 100;

/** The watches for silence, which end only when the test says so: other timers, such as those of fetch, go on. */
function heldWatches() {
  const begin = globalThis.setTimeout;
  const end = globalThis.clearTimeout;
  const held = new Map<unknown, () => void>();
  let begun = 0;
  const begins = vi.spyOn(globalThis, "setTimeout").mockImplementation(((work: () => void, ms?: number) => {
    if (ms !== SILENCE) return begin(work, ms);
    begun += 1;
    const timer = begin(() => undefined, 0);
    held.set(timer, work);
    return timer;
  }));
  const ends = vi.spyOn(globalThis, "clearTimeout").mockImplementation((timer) => {
    held.delete(timer);
    end(timer);
  });
  closing.push(() => {
    begins.mockRestore();
    ends.mockRestore();
  });
  return { begun: () => begun, running: () => held.size, expire: () => { for (const work of held.values()) work(); } };
}

async function until(reached: () => boolean): Promise<void> {
  while (!reached()) await new Promise(setImmediate);
}

function listen(url: string, after: string | null = null, silence = 5000) {
  const frames: Frame[] = [];
  const connections: Connection[] = [];
  const ending = new AbortController();
  closing.push(() => { ending.abort(); });
  const done = follow(url, {
    after,
    signal: ending.signal,
    onFrame: (one) => frames.push(one),
    onConnection: (link) => connections.push(link),
    silence,
    firstDelay: 5,
  });
  return { frames, connections, done, ending };
}

test("frames are whole however the text is cut", () => {
  const text = ": heartbeat\r\n\r\nid: 1.0.0\r\nevent: state\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\n";
  for (let size = 1; size <= text.length; size += 1) {
    const reader = new FrameReader();
    const frames: Frame[] = [];
    for (let at = 0; at < text.length; at += size) frames.push(...reader.feed(text.slice(at, at + size)));
    expect(frames, `cut every ${size}`).toEqual([
      { id: "1.0.0", event: "state", data: '{"a":\n1}' },
      { id: "1.0.0", event: "message", data: "x" },
    ]);
  }
});

test("a broken connection is resumed after the last whole event: no gap, no double", async () => {
  const lastIds: (string | undefined)[] = [];
  const url = await serve(
    (request, response) => {
      lastIds.push(request.headers["last-event-id"] as string | undefined);
      start(response);
      // The third event is cut in its middle.
      response.write(frame(1) + frame(2) + frame(3).slice(0, 20), () => response.destroy());
    },
    (request, response) => {
      lastIds.push(request.headers["last-event-id"] as string | undefined);
      start(response);
      response.end(frame(3) + frame(4) + END);
    },
  );
  const { frames, connections, done } = listen(url, "0.0.0");
  await done;
  expect(lastIds).toEqual(["0.0.0", "0.2.0"]);
  expect(frames.map((one) => one.data)).toEqual([1, 2, 3, 4].map((n) => `{"step": ${n}}`));
  expect(connections).toEqual(["connecting", "live", "lost", "live", "ended"]);
});

test("a silent connection counts as broken", async () => {
  const url = await serve(
    (_, response) => {
      start(response);
      response.write(frame(1));
    },
    (_, response) => {
      start(response);
      response.end(frame(2) + END);
    },
  );
  const watches = heldWatches();
  const { frames, done } = listen(url, null, SILENCE);
  await until(() => frames.length === 1);
  watches.expire();
  await done;
  expect(frames.map((one) => one.id)).toEqual(["0.1.0", "0.2.0"]);
});

test("heartbeats keep a connection alive", async () => {
  const open: http.ServerResponse[] = [];
  const url = await serve((_, response) => {
    open.push(response);
    start(response);
    response.flushHeaders();
  });
  const watches = heldWatches();
  const { connections, done } = listen(url, null, SILENCE);
  await until(() => connections.includes("live"));
  for (let beat = 0; beat < 5; beat += 1) {
    const before = watches.begun();
    open[0]?.write(": still here\n\n");
    await until(() => watches.begun() > before);
    expect(watches.running()).toBe(1);
  }
  open[0]?.end(END);
  await done;
  expect(open).toHaveLength(1);
});

test("a server that is not ready is retried", async () => {
  const url = await serve(
    (_, response) => response.writeHead(503).end(),
    (_, response) => {
      start(response);
      response.end(frame(1) + END);
    },
  );
  const { frames, done } = listen(url);
  await done;
  expect(frames).toHaveLength(1);
});

test.each([
  ["heartbeats is resumed as soon as one that sent events", ": shardyard\n\n: heartbeat\n\n", [5, 5, 5]],
  ["the comment with which it begins is resumed more and more seldom", ": shardyard\nretry: 1000\n\n", [5, 10, 20]],
])("a connection that sent only %s", async (_, sent, pauses) => {
  const broken: http.RequestListener = (_, response) => {
    start(response);
    response.write(sent, () => response.destroy());
  };
  const url = await serve(broken, broken, broken, (_, response) => {
    start(response);
    response.end(END);
  });
  const begins = vi.spyOn(globalThis, "setTimeout");
  closing.push(() => { begins.mockRestore(); });
  const { done } = listen(url);
  await done;
  expect(begins.mock.calls.map(([, ms]) => ms).filter((ms) => [5, 10, 20].includes(ms ?? 0))).toEqual(pauses);
});

test("a refusal is raised and not retried", async () => {
  const body = JSON.stringify({ title: "No such job", status: 404, code: "job_not_found", detail: "There is no job x." });
  const url = await serve((_, response) => response.writeHead(404).end(body));
  const { done } = listen(url);
  await expect(done).rejects.toEqual(new Problem(404, "job_not_found", "No such job", "There is no job x."));
});

test("following stops when its signal aborts", async () => {
  const url = await serve((_, response) => {
    start(response);
    response.write(frame(1));
  });
  const { done, ending, frames } = listen(url);
  await expect.poll(() => frames.length).toBe(1);
  ending.abort();
  await done;
});
