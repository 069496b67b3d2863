import { act, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import { Route } from "wouter";
import { RouteChange } from "../components/route-change";
import type { JobWire } from "../api/jobs";
import { expectAccessible } from "../testing/accessible";
import { given, open, type SentRequest } from "../testing/control-plane";
import { showInView } from "../testing/in-view";
import { jobWire } from "../testing/jobs";
import { JobPage } from "./job";

vi.mock("../components/chart", () => import("../testing/chart"));

const CURVES = { width: 1, starts: [1], series: { loss: { mean: [2.5], low: null, high: null, last: 2.5 } }, evals: [], end: 1, last_step: 1, cursor: "0.1.0" };
const PROGRAM = { spec: { name: "mine", command: ["true"] }, progress: null };

/** What a running job answers; the paths and queries that were requested below its own. */
function plane(changes: Partial<JobWire> = {}) {
  const answer = (body: unknown) => () => Response.json(body);
  const items = answer({ items: [], next: null, first: null, last: null });
  const requests = given({
    "GET /v1/jobs/job-1": answer(jobWire(changes)),
    "GET /v1/jobs/job-1/curves": answer(CURVES),
    "GET /v1/jobs/job-1/events": () => new Response(new ReadableStream(), { headers: { "Content-Type": "text/event-stream" } }),
    "GET /v1/jobs/job-1/timeline": answer({ spans: [], marks: [], complete: true }),
    "GET /v1/jobs/job-1/logs": answer({ lines: [], next: null }),
    "GET /v1/jobs/job-1/resources": answer({ layout: "data 2", step: null, memory: [], traffic: [], off_plan: null, reason: null }),
    ...Object.fromEntries(["incidents", "checkpoints", "operations", "ranks", "traces", "profiles", "logged-metrics"].map((name) => [`GET /v1/jobs/job-1/${name}`, items])),
  });
  const asked = () => new Set(requests.flatMap(({ url }) => (url.pathname.startsWith("/v1/jobs/job-1/") ? [url.pathname.slice("/v1/jobs/job-1/".length) + (url.pathname.endsWith("/events") ? url.search : "")] : [])));
  return { requests, asked };
}

const show = (address: string) => open(<RouteChange><Route path="/jobs/:id/:tab?">{({ id, tab }) => <JobPage key={id} id={id} tab={tab} />}</Route></RouteChange>, address);
const tabs = () => screen.findByRole("navigation", { name: "Tabs of the job" });
const links = async () => within(await tabs()).getAllByRole("link");

beforeEach(() => { showInView(); });

test("a training has tabs of its ranks and traces; a program has not", async () => {
  plane();
  const first = show("/jobs/job-1");
  expect((await links()).map((link) => [link.textContent, link.getAttribute("href")])).toEqual([
    ["Overview", "/jobs/job-1"],
    ...["Metrics", "System", "Ranks", "Traces", "Logs", "Checkpoints", "Spec"].map((name) => [name, `/jobs/job-1/${name.toLowerCase()}`]),
  ]);
  first.unmount();
  plane(PROGRAM);
  show("/jobs/job-1");
  const expected = ["Overview", "Metrics", "System", "Logs", "Checkpoints", "Files", "Spec"];
  expect((await links()).map((link) => link.textContent)).toEqual(expected);
});

test.each([
  ["overview", "", "History", ["curves", "events?ranks=false", "timeline", "incidents", "plan"]],
  ["metrics", "/metrics", "Training", ["curves", "events?ranks=false", "logged-metrics"]],
  ["ranks", "/ranks", "Memory and traffic", ["curves", "events?ranks=true", "ranks", "profiles", "resources"]],
  ["traces", "/traces", "Step trace", ["traces"]],
  ["logs", "/logs", "Logs", ["logs"]],
  ["checkpoints", "/checkpoints", "Checkpoints", ["checkpoints", "operations"]],
  ["spec", "/spec", "Spec", ["submitted-spec"]],
])("only what the tab %s shows is requested", async (name, path, heading, requested) => {
  const { asked } = plane();
  const { container } = show(`/jobs/job-1${path}`);
  await screen.findByRole("heading", { name: heading });
  const current = (await links()).filter((link) => link.getAttribute("aria-current") === "page").map((link) => link.textContent.toLowerCase());
  expect(current).toEqual([name]);
  await expect.poll(() => [...asked()].sort()).toEqual([...requested].sort());
  await expectAccessible(container);
});

/** What a browser says when its tab is hidden, or in view again. */
function turn(hidden: boolean) {
  vi.spyOn(document, "hidden", "get").mockReturnValue(hidden);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue(hidden ? "hidden" : "visible");
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
}

/** The signals of the requests for the job's stream. */
function streams(): AbortSignal[] {
  const signals: AbortSignal[] = [];
  const fetched = globalThis.fetch;
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    if (path.includes("/events") && init.signal) signals.push(init.signal);
    return fetched(path, init);
  });
  return signals;
}

/** The names of the requests for curves and streams, in their order. */
const liveOf = (requests: readonly SentRequest[]) => requests.flatMap(({ url }) => /\/(curves|events)$/.exec(url.pathname)?.[1] ?? []);

test("a page that stays hidden closes its stream, and reads the curves and the stream again once it is in view", async () => {
  const { requests } = plane();
  const signals = streams();
  show("/jobs/job-1");
  await expect.poll(() => signals.length).toBe(1);
  vi.useFakeTimers();
  turn(true);
  await act(() => vi.advanceTimersByTimeAsync(3000));
  turn(false);
  await act(() => vi.advanceTimersByTimeAsync(9000));
  expect([signals[0]?.aborted, liveOf(requests)]).toEqual([false, ["curves", "events"]]);
  turn(true);
  await act(() => vi.advanceTimersByTimeAsync(5000));
  expect(signals[0]?.aborted).toBe(true);
  vi.useRealTimers();
  act(() => { turn(false); });
  await expect.poll(() => liveOf(requests)).toEqual(["curves", "events", "curves", "events"]);
  expect(signals[1]?.aborted).toBe(false);
});

test("a page that is opened in the background streams nothing until it is in view, and its title follows the job", async () => {
  let state: JobWire["state"] = "queued";
  const { requests } = plane();
  const fetched = globalThis.fetch;
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => (path === "/v1/jobs/job-1" ? Promise.resolve(Response.json(jobWire({ state }))) : fetched(path, init)));
  turn(true);
  vi.useFakeTimers();
  show("/jobs/job-1");
  await act(() => vi.advanceTimersByTimeAsync(100));
  expect(document.title).toContain("queued");
  state = "running";
  await act(() => vi.advanceTimersByTimeAsync(10_000));
  expect(document.title).toContain("running");
  expect(liveOf(requests)).toEqual([]);
  vi.useRealTimers();
  act(() => { turn(false); });
  await expect.poll(() => liveOf(requests)).toEqual(["curves", "events"]);
});

test("a plan that is reported while the page is hidden is shown once it is in view, in place of the one before", async () => {
  const none = { parameters: null, tokens_per_step: null, train_tokens: null, validation_tokens: null };
  let plan: object = none;
  const event = { ...none, ts: 1, layout: "", world_size: 2, batch: "", device: "cpu" };
  let stream = new ReadableStream();
  plane();
  const fetched = globalThis.fetch;
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    if (path.endsWith("/plan")) return Promise.resolve(Response.json(plan));
    if (path.includes("/events")) return Promise.resolve(new Response(stream, { headers: { "Content-Type": "text/event-stream" } }));
    return fetched(path, init);
  });
  const look = async (wait: () => Promise<unknown>) => {
    vi.useFakeTimers();
    turn(true);
    await act(() => vi.advanceTimersByTimeAsync(6000));
    vi.useRealTimers();
    act(() => { turn(false); });
    await wait();
  };
  show("/jobs/job-1");
  await screen.findByRole("heading", { name: "History" });
  expect(screen.queryByText("Parameters")).toBeNull();
  plan = { ...none, parameters: 1_000_000 };
  await look(() => screen.findByText("1.0M"));
  // The stream has one, and another is reported while it is closed.
  plan = { ...none, parameters: 2_000_000 };
  stream = new ReadableStream({ start: (to) => { to.enqueue(new TextEncoder().encode(`id: 1.0.0\nevent: plan\ndata: ${JSON.stringify({ ...event, parameters: 2_000_000 })}\n\n`)); } });
  await look(() => screen.findByText("2.0M"));
  stream = new ReadableStream();
  plan = { ...none, parameters: 3_000_000 };
  await look(() => screen.findByText("3.0M"));
});

test("a stream ends with its tab, and the job is still polled", async () => {
  const { requests, asked } = plane(PROGRAM);
  show("/jobs/job-1");
  const signals = streams();
  await screen.findByRole("heading", { name: "History" });
  await expect.poll(() => signals.length).toBe(1);
  await userEvent.click(screen.getByRole("link", { name: "Metrics" }));
  await screen.findByRole("region", { name: "Metrics" });
  expect(signals[0]?.aborted).toBe(true);
  const before = asked().size;
  const polled = () => requests.filter(({ url }) => url.pathname === "/v1/jobs/job-1").length;
  const count = polled();
  await expect.poll(polled).toBeGreaterThan(count);
  expect(asked().size).toBe(before);
});

test("the title has the job, the tab and the state; a tab keeps the focus on its link, and what it was set to", async () => {
  plane();
  show("/jobs/job-1/logs?rank=2");
  await screen.findByRole("heading", { name: "Logs" });
  expect(document.title).toBe("llama-nano · Logs · running · Shardyard");
  const spec = within(await tabs()).getByRole("link", { name: "Spec" });
  spec.focus();
  await userEvent.keyboard("{Enter}");
  await screen.findByRole("heading", { name: "Spec" });
  expect(location.pathname).toBe("/jobs/job-1/spec");
  expect(document.activeElement).toBe(spec);
  expect(document.title).toBe("llama-nano · Spec · running · Shardyard");
  expect(screen.getAllByRole("status").map((status) => status.textContent)).toContain(document.title);
  const logs = within(await tabs()).getByRole("link", { name: "Logs" });
  expect(logs.getAttribute("href")).toBe("/jobs/job-1/logs?rank=2");
  await userEvent.click(logs);
  expect(await screen.findByRole("combobox", { name: "Rank" })).toHaveProperty("value", "2");
});

test("back and forward go between tabs, each where it was left", async () => {
  plane();
  const places: number[] = [];
  show("/jobs/job-1/spec");
  await screen.findByRole("heading", { name: "Spec" });
  vi.spyOn(window, "scrollTo").mockImplementation(((_: number, top: number) => { places.push(top); }));
  vi.stubGlobal("scrollY", 120);
  dispatchEvent(new Event("scroll"));
  await userEvent.click(screen.getByRole("link", { name: "Checkpoints" }));
  await screen.findByRole("heading", { name: "Checkpoints" });
  history.back();
  await screen.findByRole("heading", { name: "Spec" });
  expect(places).toEqual([0, 120]);
  history.forward();
  await screen.findByRole("heading", { name: "Checkpoints" });
});

test("a tab that the job does not have is said", async () => {
  const { asked } = plane(PROGRAM);
  show("/jobs/job-1/traces");
  expect(await screen.findByText(/no tab of this name/)).toBeTruthy();
  expect(document.title).toBe("llama-nano · Not found · running · Shardyard");
  expect([...asked()]).toEqual([]);
});

test("a name in the address is replaced by the job's id, so that a deleted job is restored there", async () => {
  let deleted = false;
  const ended = () => Response.json(jobWire({ state: "failed" }));
  const requests = given({
    "GET /v1/jobs/llama-nano": ended,
    "GET /v1/jobs/job-1": () => (deleted ? Response.json({ title: "The job was deleted", code: "job_deleted" }, { status: 410 }) : ended()),
    "DELETE /v1/jobs/job-1": () => { deleted = true; return ended(); },
    "GET /v1/jobs": () => Response.json({ items: [], next: null }),
  });
  show("/jobs/llama-nano/spec?lines=3");
  await screen.findByRole("heading", { name: "Spec" });
  expect(location.pathname + location.search).toBe("/jobs/job-1/spec?lines=3");
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the job" }));
  await userEvent.click(await screen.findByRole("button", { name: "Undo" }));
  await expect.poll(() => requests.some(({ method }) => method === "POST")).toBe(true);
  expect(requests.filter(({ method }) => method === "POST").map(({ url }) => url.pathname)).toEqual(["/v1/jobs/job-1/undelete"]);
});

test("a job that is not there is asked for once", async () => {
  const requests = given({});
  open(<JobPage id="job-9" tab={undefined} />);
  await screen.findByRole("alert");
  vi.useFakeTimers();
  await vi.advanceTimersByTimeAsync(10_000);
  vi.useRealTimers();
  expect(requests.filter(({ url }) => url.pathname === "/v1/jobs/job-9").length).toBe(1);
});
