import { fireEvent, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import type { JobWire } from "../api/jobs";
import { expectAccessible } from "../testing/accessible";
import { given, open, type SentRequest } from "../testing/control-plane";
import { showInView } from "../testing/in-view";
import { jobWire } from "../testing/jobs";
import { ComparePage } from "./compare";

vi.mock("../components/chart", () => import("../testing/chart"));

const program = (id: string, name: string): JobWire => jobWire({ id, name, state: "succeeded", spec: { name, command: ["true"] }, progress: null });
const NO_CURVES = { width: 1, starts: [], series: {}, last_step: 0, end: 0, evals: [], cursor: "0.0.0" };
const series = (mean: number[]) => ({ mean, low: null, high: null, last: mean.at(-1) });
const TRAINED = { ...NO_CURVES, starts: [1, 2], series: { loss: series([4, 2]), tokens_per_s: series([100, 200]) }, last_step: 2, end: 2, evals: [{ step: 2, loss: 2.25 }] };

/** A run of the control plane: its job, its own curves, and by name what it logged at the steps 0, 1, … */
interface Known {
  job: JobWire;
  curves?: object;
  logged?: Record<string, number[]>;
  /** Seconds of a step. */
  pace?: number;
}

const BEGUN = Date.parse("2026-11-21T12:00:04Z") / 1000;
const pointsAt = (pace: number) => [1, 1000].map((step) => ({ step, ts: BEGUN + pace * step, tokens: 512 * step }));

function loggedCurves(logged: Record<string, number[]>, { url }: SentRequest): Response {
  const known = url.searchParams.getAll("name").filter((name) => name in logged);
  const of = (values: number[]) => ({ ...series(values), width: 1, starts: values.map((_, at) => at), last_step: values.length - 1 });
  return Response.json({ series: Object.fromEntries(known.map((name) => [name, of(logged[name] ?? [])])) });
}

function controlPlane(runs: readonly Known[]): SentRequest[] {
  const names = [...new Set(runs.flatMap(({ logged = {} }) => Object.keys(logged)))].sort();
  const answers: Parameters<typeof given>[0] = {
    "GET /v1/jobs": () => Response.json({ items: runs.map(({ job }) => job), next: null }),
    "GET /v1/logged-names": ({ url }) => {
      const found = names.filter((name) => name.includes(url.searchParams.get("text") ?? ""));
      return Response.json({ items: found.map((name) => ({ name, jobs: 1, last_step: 2 })), more: false });
    },
  };
  for (const { job, curves = NO_CURVES, logged = {}, pace = 1 } of runs) {
    answers[`GET /v1/jobs/${job.id}/metrics`] = () => Response.json({ points: pointsAt(pace), evals: [] });
    answers[`GET /v1/jobs/${job.id}`] = () => Response.json(job);
    answers[`GET /v1/jobs/${job.id}/curves`] = () => Response.json(curves);
    answers[`GET /v1/jobs/${job.id}/logged-curves`] = (request) => loggedCurves(logged, request);
  }
  return given(answers);
}

const PROGRAMS: readonly Known[] = [
  { job: program("job-1", "one"), logged: { "train/loss": [2, 1, 1.5], acc: [0.5, 0.9, 0.8] } },
  { job: program("job-2", "two"), logged: { "train/loss": [4, 2, 1.5], only: [7] } },
];
const BOTH = "/compare?job=job-1&job=job-2";

const charts = () => screen.queryAllByRole("figure").map((figure) => figure.getAttribute("aria-label"));
const row = (name: string) => within(screen.getByRole("region", { name: "Runs" })).getByRole("rowheader", { name }).closest("tr") ?? document.body;
const cells = (name: string) => within(row(name)).getAllByRole("cell").slice(5, -1).map((cell) => cell.textContent);
const address = () => Object.fromEntries([...new URLSearchParams(location.search)].filter(([name]) => name !== "job"));

beforeEach(() => {
  localStorage.clear();
  showInView();
});

test("what programs logged is drawn, a panel for each name of any run", async () => {
  const requests = controlPlane(PROGRAMS);
  const { container } = open(<ComparePage />, BOTH);
  await expect.poll(charts).toEqual(["acc. one ends at 0.8.", "only. two ends at 7.", "train/loss. one ends at 1.5, two ends at 1.5."]);
  expect(screen.getAllByRole("heading", { level: 2 }).map((heading) => heading.textContent)).toEqual(["Without a prefix", "train", "Differences of the specs"]);
  expect(screen.getByText("3 metrics")).toBeTruthy();
  expect(requests.filter(({ url }) => url.pathname.endsWith("/logged-names"))).toHaveLength(1);
  await expectAccessible(container);
});

test("the table has last values with their differences to the baseline, which is chosen in it", async () => {
  controlPlane(PROGRAMS);
  const { container } = open(<ComparePage />, BOTH);
  await screen.findByRole("columnheader", { name: "train/loss" });
  await expect.poll(() => cells("one")).toEqual(["0.8", "–", "1.5"]);
  expect(cells("two")).toEqual(["–", "7", "1.5+0 (+0.0 %)"]);
  await userEvent.selectOptions(screen.getByLabelText("Table"), "lowest");
  expect(cells("two")).toEqual(["–", "7", "1.5+0.5 (+50.0 %)"]);
  await userEvent.click(screen.getByRole("radio", { name: "Baseline two" }));
  expect([cells("one")[2], cells("two")[2]]).toEqual(["1-0.5 (-33.3 %)", "1.5"]);
  await expect.poll(address).toEqual({ result: "lowest", base: "job-2" });
  await expectAccessible(container);
});

test("metrics of the table are chosen, and stay in the address", async () => {
  controlPlane(PROGRAMS);
  const { container } = open(<ComparePage />, `${BOTH}&metric=metric.only&result=highest`);
  await expect.poll(() => cells("two")).toEqual(["7"]);
  await userEvent.click(screen.getByRole("button", { name: "Metrics…" }));
  const dialog = within(screen.getByRole("dialog", { name: "Metrics" }));
  await userEvent.click(dialog.getByRole("checkbox", { name: "metric.acc" }));
  await userEvent.click(dialog.getByRole("checkbox", { name: "metric.only" }));
  await expectAccessible(container);
  await userEvent.click(dialog.getByRole("button", { name: "Close" }));
  await expect.poll(() => cells("one")).toEqual(["0.9"]);
  await expect.poll(address).toEqual({ metric: "metric.acc", result: "highest" });
});

test("charts show the difference to the baseline at equal steps", async () => {
  controlPlane(PROGRAMS);
  open(<ComparePage />, `${BOTH}&base=job-2`);
  await expect.poll(charts).toHaveLength(3);
  await userEvent.click(screen.getByRole("checkbox", { name: "Charts show the difference to two" }));
  await expect.poll(charts).toEqual(["only, difference. Difference to two. two ends at 0.", "train/loss, difference. Difference to two. one ends at 0, two ends at 0."]);
  expect(screen.getByText("The baseline two has no such metric.")).toBeTruthy();
  await expect.poll(address).toEqual({ base: "job-2", difference: "1" });
});

test("trainings and programs are over each other; along tokens only trainings are drawn, and the page says so", async () => {
  const trained = (id: string, name: string) => ({ job: jobWire({ id, name, state: "succeeded" }), curves: TRAINED, logged: { router: [3, 2] } });
  controlPlane([trained("job-1", "one"), trained("job-2", "two"), { job: program("job-3", "three"), logged: { router: [1], acc: [1] } }]);
  open(<ComparePage />, `${BOTH}&job=job-3`);
  await expect.poll(charts).toEqual([
    "Loss (nats per token). one ends at 2.0000, two ends at 2.0000.",
    "Validation loss (nats per token). one ends at 2.2500, two ends at 2.2500.",
    "Tokens per second. one ends at 200, two ends at 200.",
    "acc. three ends at 1.",
    "router. one ends at 2, two ends at 2, three ends at 1.",
  ]);
  expect(cells("two").slice(0, 3)).toEqual(["2.0000+0 (+0.0 %)", "2.2500+0 (+0.0 %)", "200+0 (+0.0 %)"]);
  await userEvent.selectOptions(screen.getByLabelText("Along"), "tokens");
  expect(await screen.findByText("Not drawn along tokens: three. Programs log their numbers by step only.")).toBeTruthy();
  expect(await screen.findByText("Only steps are known of it: choose Along steps.")).toBeTruthy();
  await expect.poll(address).toEqual({ by: "tokens" });
});

test("a search is of all names, and settings stay while a run is removed and another one added", async () => {
  controlPlane(PROGRAMS);
  open(<ComparePage />, `${BOTH}&smooth=0.5`);
  await expect.poll(charts).toHaveLength(3);
  await userEvent.type(screen.getByRole("searchbox", { name: "Find metrics" }), "loss");
  await expect.poll(charts).toEqual(["train/loss. one ends at 1.5, two ends at 1.5."]);
  await expect.poll(address).toEqual({ smooth: "0.5", find: "loss" });
  await userEvent.click(screen.getByRole("button", { name: "Remove two" }));
  await expect.poll(charts).toEqual(["train/loss. one ends at 1.5."]);
  expect(screen.queryByRole("checkbox", { name: /difference/ })).toBeNull();
  await userEvent.click(await screen.findByRole("button", { name: /Add two/ }));
  await expect.poll(charts).toEqual(["train/loss. one ends at 1.5, two ends at 1.5."]);
  expect(location.search).toContain("job=job-1&job=job-2");
  await userEvent.type(screen.getByRole("searchbox", { name: "Find metrics" }), " of nothing");
  expect(await screen.findByText("No metric’s name contains this text.")).toBeTruthy();
});

test("of a thousand names only those in view are read, a few requests for each run", async () => {
  showInView((name) => Number(name.slice(1)) < 30);
  const logged = Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`m${String(at).padStart(3, "0")}`, [at]]));
  const requests = controlPlane(PROGRAMS.map(({ job }) => ({ job, logged })));
  open(<ComparePage />, BOTH);
  await expect.poll(() => charts().length).toBe(30);
  const counts = requests.filter(({ url }) => url.pathname.endsWith("/logged-curves") && url.searchParams.get("buckets") !== "2").map(({ url }) => url.searchParams.getAll("name").length);
  expect(counts.toSorted((a, b) => a - b)).toEqual([6, 6, 24, 24]);
});

test.each<[JobWire["state"], string]>([
  ["running", "Curves appear after the first step of a training, and when a program logs numbers:"],
  ["failed", "None of these jobs has a metric."],
])("jobs that are %s and have no metric", async (state, text) => {
  controlPlane(["job-1", "job-2"].map((id) => ({ job: { ...program(id, id), state } })));
  open(<ComparePage />, BOTH);
  expect(await screen.findByText(new RegExp(text))).toBeTruthy();
});

test("a job that is not there is said, beside those that are, and can be removed", async () => {
  controlPlane(PROGRAMS);
  const { container } = open(<ComparePage />, "/compare?job=job-1&job=absent");
  expect((await screen.findByRole("alert")).textContent).toBe("No such page");
  await expect.poll(charts).toEqual(["acc. one ends at 0.8.", "train/loss. one ends at 1.5."]);
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Remove absent" }));
  expect([location.search, screen.queryByRole("alert")]).toEqual(["?job=job-1", null]);
});

test("jobs that are not there are asked for once, also without any that is", async () => {
  const requests = controlPlane(PROGRAMS);
  vi.useFakeTimers({ shouldAdvanceTime: true });
  onTestFinished(() => { vi.useRealTimers(); });
  open(<ComparePage />, "/compare?job=absent&job=gone");
  await screen.findByRole("button", { name: "Remove gone" });
  expect(screen.queryByText("Loading the runs…")).toBeNull();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(requests.filter(({ url }) => url.pathname.startsWith("/v1/jobs/")).map(({ url }) => url.pathname)).toEqual(["/v1/jobs/absent", "/v1/jobs/gone"]);
  fireEvent.click(screen.getByRole("button", { name: "Remove absent" }));
  expect(location.search).toBe("?job=gone");
});

test("nothing to compare yet", async () => {
  controlPlane(PROGRAMS);
  open(<ComparePage />, "/compare");
  expect(screen.getByText("Nothing to compare yet")).toBeTruthy();
  await userEvent.click(await screen.findByRole("button", { name: /Add one/ }));
  expect(location.search).toBe("?job=job-1");
});

test("names that cannot be read are said, and hide no training’s curves", async () => {
  controlPlane([{ job: jobWire({ id: "job-1", state: "succeeded" }), curves: TRAINED }]);
  const before = fetch;
  const broken = () => Promise.resolve(Response.json({ title: "An error of the control plane", code: "internal_error" }, { status: 500 }));
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => (path.startsWith("/v1/logged-names") ? broken() : before(path, init)));
  open(<ComparePage />, "/compare?job=job-1");
  expect((await screen.findByRole("alert", {}, { timeout: 5000 })).textContent).toContain("An error of the control plane");
  expect(screen.queryByText("Loading the metrics…")).toBeNull();
  expect(charts().length).toBeGreaterThan(0);
});

/** A run that ends while it is compared: `end`, and what is read of it. */
function ending() {
  let state: JobWire["state"] = "running";
  const trained = { ...TRAINED, width: 2, starts: [1, 3], last_step: 4, end: 4 };
  const requests = controlPlane([{ job: jobWire({ id: "job-1" }), curves: trained }]);
  const before = fetch;
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => (path === "/v1/jobs/job-1" ? Promise.resolve(Response.json(jobWire({ id: "job-1", state }))) : before(path, init)));
  const end = () => {
    state = "succeeded";
    window.dispatchEvent(new Event("visibilitychange")); // the page is in view again: it is read at once
  };
  return { requests, end };
}

test("a range is read once more when its run has ended", async () => {
  const { requests, end } = ending();
  open(<ComparePage />, "/compare?job=job-1&from=2&to=3");
  const ranges = () => requests.filter(({ url }) => url.pathname.endsWith("/curves") && url.searchParams.get("to") === "3").length;
  await expect.poll(ranges).toBeGreaterThan(0);
  const before = ranges();
  end();
  await expect.poll(ranges).toBeGreaterThan(before);
});

test("a range from step 0, where logged metrics may begin, is one from step 1 for a training's curves", async () => {
  const { requests } = ending();
  open(<ComparePage />, "/compare?job=job-1&from=0&to=3");
  const ranges = () => requests.filter(({ url }) => url.pathname.endsWith("/curves") && url.searchParams.get("to") === "3");
  await expect.poll(ranges).not.toEqual([]);
  expect(ranges()[0]?.url.searchParams.get("from")).toBe("1");
});

/** Of each path and run the ranges of steps that were read last: `curves job-1: 100-200`. */
const rangesRead = (requests: readonly SentRequest[]) =>
  [...new Map(requests.flatMap(({ url: { pathname, searchParams } }) => {
    const [, id, kind] = /jobs\/(job-\d)\/((?:logged-)?curves)$/.exec(pathname) ?? [];
    if (id === undefined || !searchParams.has("to")) return [];
    return [[`${kind} ${id}`, `${kind} ${id}: ${searchParams.get("from")}-${searchParams.get("to")}`]];
  })).values()].sort();

const paced = (id: string, pace: number): Known => ({ job: jobWire({ id, name: id, state: "succeeded" }), curves: { ...TRAINED, width: 2, starts: [1, 3], last_step: 1000, end: 1000 }, logged: { acc: [1, 2] }, pace });

test.each([
  ["one axis of steps", "", "100-200", "100-200", "100-200"],
  ["time, each run in its own steps", "&by=time", "100-200", "200-400", "33-67"],
  ["time against a baseline, which is read wherever a run is", "&by=time&difference=1", "33-400", "200-400", "33-67"],
])("a range is read along %s", async (_, more, ...ranges) => {
  const requests = controlPlane([paced("job-1", 1), paced("job-2", 0.5), paced("job-3", 3)]);
  open(<ComparePage />, `${BOTH}&job=job-3&from=100&to=200${more}`);
  const expected = ["curves", "logged-curves"].flatMap((kind) => ranges.map((range, at) => `${kind} job-${at + 1}: ${range}`));
  await expect.poll(() => rangesRead(requests)).toEqual(expected);
});

test("a run's curves are read after its state, so that those of a run that has ended are whole", async () => {
  const { end } = ending();
  const before = fetch;
  const order: string[] = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    if (path.includes("/curves")) order.push("curves");
    const answer = await before(path, init);
    if (path === "/v1/jobs/job-1") order.push(((await answer.clone().json()) as JobWire).state);
    return answer;
  });
  open(<ComparePage />, "/compare?job=job-1");
  await expect.poll(charts).not.toEqual([]);
  end();
  await expect.poll(() => order.slice(-2)).toEqual(["succeeded", "curves"]);
  expect(order.map((one) => one === "curves")).toEqual(order.map((_, at) => at % 2 === 1));
});
