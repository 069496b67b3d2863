import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { beforeEach, expect, test, vi } from "vitest";
import type { Schema } from "../../api/http";
import { EMPTY } from "../../model/live";
import { merge } from "../../model/curve";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { Ending, ending } from "../../testing/ending";
import { showInView } from "../../testing/in-view";
import { JobMetrics } from "./job-metrics";

vi.mock("../../components/chart", () => import("../../testing/chart"));

const PROGRAM = job({ state: "succeeded", spec: { name: "mine", command: ["true"] }, progress: null });
const CURVE: Schema<"LoggedCurve"> = { width: 2, starts: [0, 2], mean: [1, 0.5], low: [0.5, 0.25], high: [2, 0.75], last: 0.25, last_step: 40 };
const values = { loss: 2, tokens_per_s: 100, mfu: null, grad_norm: null, lr: 0.1, loss_scale: null };
const NOTHING = { ...EMPTY, connection: "live", problem: null } as const;
const LIVE = { ...NOTHING, curve: merge(EMPTY.curve, [{ step: 1, values }, { step: 2, values }]) };

function answers(names: readonly string[]) {
  const asked: string[][] = [];
  given({
    "GET /v1/jobs/job-1/logged-metrics": () => Response.json({ items: names.map((name) => ({ name, last_step: 40, last: 0.25, width: 1 })), next: null }),
    "GET /v1/jobs/job-1/logged-curves": (request) => {
      const wanted = new URL(request.url).searchParams.getAll("name");
      asked.push(wanted);
      return Response.json({ series: Object.fromEntries(wanted.map((name) => [name, CURVE])) });
    },
  });
  return asked;
}

const charts = () => screen.queryAllByRole("figure").map((figure) => figure.getAttribute("aria-label")?.split(".")[0]);

beforeEach(() => { localStorage.clear(); });

test("metrics that are logged are in groups by their prefix", async () => {
  showInView();
  const asked = answers(["lr", "train/acc", "train/loss"]);
  const { container } = open(<JobMetrics job={PROGRAM} live={NOTHING} />);
  expect(await screen.findByLabelText("train/loss. 0.25 at step 40.")).toBeTruthy();
  expect(charts()).toEqual(["lr", "train/acc", "train/loss"]);
  expect(screen.getAllByRole("heading").map((heading) => heading.textContent)).toEqual(["Without a prefix", "train"]);
  expect(asked).toEqual([["lr", "train/acc", "train/loss"]]);
  await expectAccessible(container);
});

test("a training's own curves are first, and a search is of all", async () => {
  showInView();
  answers(["router/loss"]);
  open(<JobMetrics job={job()} live={LIVE} />, "/jobs/job-1/metrics?find=LOSS");
  await screen.findByLabelText(/^router\/loss\./);
  expect(charts()).toEqual(["Loss (nats per token)", "router/loss"]);
  expect(screen.getByText("2 metrics")).toBeTruthy();
  await userEvent.clear(screen.getByRole("searchbox", { name: "Find metrics" }));
  await expect.poll(charts).toEqual(["Loss (nats per token)", "Tokens per second", "Learning rate", "router/loss"]);
  await userEvent.type(screen.getByRole("searchbox"), "nothing of it");
  expect(await screen.findByText("No metric’s name contains this text.")).toBeTruthy();
  await expect.poll(() => location.search).toBe("?find=nothing+of+it");
});

/** The first and the last step of each range of the curves that is read. The loss at its end is that of the reading. */
function rangesRead(): (string | null)[][] {
  showInView();
  answers([]);
  const before = fetch;
  const ranges: (string | null)[][] = [];
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    const { pathname, searchParams } = new URL(path, "http://control.plane");
    if (!pathname.endsWith("/curves")) return before(path, init);
    ranges.push([searchParams.get("from"), searchParams.get("to")]);
    const loss = { mean: [2, ranges.length], low: null, high: null, last: 1 };
    return Promise.resolve(Response.json({ width: 1, starts: [2, 3], series: { loss }, evals: [], end: 0, last_step: 8, cursor: "0.8.0" }));
  });
  return ranges;
}

function coarse(count: number) {
  const steps = Array.from({ length: count }, (_, at) => ({ step: at + 1, values }));
  return { ...NOTHING, curve: merge({ ...EMPTY.curve, width: 2 }, steps) };
}

test("a range is read once more when the job has ended", async () => {
  const ranges = rangesRead();
  const live = coarse(8);
  open(<Ending>{(state) => <JobMetrics job={job({ state })} live={live} />}</Ending>, "/jobs/job-1/metrics?from=2&to=3");
  expect(await screen.findByLabelText(/^Loss.* 1\.0000 at step 3\./)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "End" }));
  expect(await screen.findByLabelText(/^Loss.* 2\.0000 at step 3\./)).toBeTruthy();
  expect(ranges).toEqual([["2", "3"], ["2", "3"]]);
});

test("a range is read again when its steps may have been replaced", async () => {
  const ranges = rangesRead();
  function Page() {
    const [version, set] = useState(1);
    return <><button onClick={() => { set(2); }}>Restart</button><JobMetrics job={job()} live={{ ...coarse(8), version }} /></>;
  }
  open(<Page />, "/jobs/job-1/metrics?from=2&to=3");
  expect(await screen.findByLabelText(/^Loss.* 1\.0000 at step 3\./)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Restart" }));
  expect(await screen.findByLabelText(/^Loss.* 2\.0000 at step 3\./)).toBeTruthy();
  expect(ranges).toEqual([["2", "3"], ["2", "3"]]);
});

test("a page reads its ranges itself, as steps may have been replaced since an earlier one", async () => {
  const ranges = rangesRead();
  function Pages() {
    const [page, set] = useState(1);
    return <><button onClick={() => { set(page + 1); }}>Next</button>{page !== 2 && <JobMetrics job={job()} live={coarse(8)} />}</>;
  }
  open(<Pages />, "/jobs/job-1/metrics?from=2&to=3");
  expect(await screen.findByLabelText(/^Loss.* 1\.0000 at step 3\./)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Next" }));
  await userEvent.click(screen.getByRole("button", { name: "Next" }));
  expect(await screen.findByLabelText(/^Loss.* 2\.0000 at step 3\./)).toBeTruthy();
  expect(ranges).toHaveLength(2);
});

test("of an ended job the last two steps are read, too", async () => {
  const ranges = rangesRead();
  open(<JobMetrics job={job({ state: "succeeded" })} live={coarse(8)} />, "/jobs/job-1/metrics?from=7&to=8");
  await expect.poll(() => ranges).toEqual([["7", null]]);
});

test("a range that lies beyond the newest step is not read with every step", async () => {
  const ranges = rangesRead();
  function Page() {
    const [steps, set] = useState(8);
    return <><button onClick={() => { set(steps + 1); }}>Step</button><JobMetrics job={job()} live={coarse(steps)} /></>;
  }
  open(<Page />, "/jobs/job-1/metrics?from=60&to=90");
  for (const step of [8, 9, 10]) {
    expect(await screen.findByLabelText(new RegExp(`^Loss.* at step ${step}\\.`))).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Step" }));
  }
  expect(ranges).toEqual([]);
});

test("the figures stay while the metrics are read once more at the job's end", async () => {
  showInView();
  answers(["train/loss"]);
  const { end, answer, asked } = ending("/logged-metrics");
  open(<Ending>{(state) => <JobMetrics job={{ ...PROGRAM, state }} live={NOTHING} />}</Ending>);
  await screen.findByLabelText("train/loss. 0.25 at step 40.");
  await end();
  await expect.poll(asked).toBe(1);
  expect(charts()).toEqual(["train/loss"]);
  answer(Response.json({ items: ["train/acc", "train/loss"].map((name) => ({ name, last_step: 41, last: 0.5, width: 1 })), next: null }));
  await expect.poll(charts).toEqual(["train/acc", "train/loss"]);
});

test("of a thousand metrics only those in view are read and drawn", async () => {
  showInView((name) => Number(name.slice(1)) < 30);
  const asked = answers(Array.from({ length: 1000 }, (_, at) => `m${String(at).padStart(3, "0")}`));
  open(<JobMetrics job={PROGRAM} live={NOTHING} />);
  await expect.poll(() => charts().length).toBe(30);
  expect(screen.getByText("1,000 metrics")).toBeTruthy();
  expect(asked.map((names) => names.length)).toEqual([24, 6]);
});

test("a closed group reads nothing, and is remembered", async () => {
  showInView();
  const asked = answers(["a/x", "b/y"]);
  const first = open(<JobMetrics job={PROGRAM} live={NOTHING} />);
  await screen.findByLabelText(/^b\/y/);
  const group = () => screen.getByRole("heading", { name: "b" }).closest("details") ?? document.createElement("details");
  group().open = false;
  await expect.poll(charts).toEqual(["a/x"]);
  first.unmount();
  asked.length = 0;
  open(<JobMetrics job={PROGRAM} live={NOTHING} />);
  await screen.findByLabelText(/^a\/x/);
  expect(within(group()).queryByRole("figure")).toBeNull();
  expect(asked).toEqual([["a/x"]]);
});

test("how to log is said while nothing is logged", async () => {
  answers([]);
  open(<JobMetrics job={{ ...PROGRAM, state: "running" }} live={NOTHING} />);
  expect(await screen.findByText(/Curves appear when the program logs numbers/)).toBeTruthy();
});

test("why a training has no curves", async () => {
  answers([]);
  const first = open(<JobMetrics job={job()} live={NOTHING} />);
  expect(await screen.findByText("Curves appear after the first step.")).toBeTruthy();
  first.unmount();
  open(<JobMetrics job={job({ state: "failed" })} live={{ ...NOTHING, connection: "connecting" }} />);
  expect(await screen.findByText("Loading the curves…")).toBeTruthy();
});

test("what an ended job has no longer is said", async () => {
  answers([]);
  for (const [changes, text] of [
    [job({ state: "succeeded" }), "No curves of this job are stored."],
    [job({ state: "failed", progress: null }), "This job ended before its first step."],
    [PROGRAM, "No logged metrics of this job are stored."],
  ] as const) {
    const page = open(<JobMetrics job={changes} live={NOTHING} />);
    expect(await screen.findByText(text)).toBeTruthy();
    page.unmount();
  }
});

test("a chart's numbers are a file with the columns that were measured", async () => {
  showInView();
  answers(["train/loss"]);
  const made: Blob[] = [];
  const names: string[] = [];
  vi.stubGlobal("URL", class extends URL {
    static override createObjectURL = (file: Blob) => `blob:${made.push(file)}`;
    static override revokeObjectURL = () => undefined;
  });
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function click(this: HTMLAnchorElement) { names.push(this.download); });
  open(<JobMetrics job={PROGRAM} live={NOTHING} />, "/jobs/job-1/metrics?smooth=0.9");
  await userEvent.click(await screen.findByRole("button", { name: "CSV of train/loss" }));
  expect(names).toEqual(["llama-nano-train-loss.csv"]);
  expect(await textOf(made[0] ?? new Blob())).toBe("series,first_step,last_step,mean,min,max\r\ntrain/loss,0,1,1,0.5,2\r\ntrain/loss,2,3,0.5,0.25,0.75\r\n");
});

/** jsdom's blobs have no `text`. */
const textOf = (file: Blob) => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => { resolve(reader.result); };
  reader.readAsText(file);
});

test("a chart fills the screen until it is closed", async () => {
  showInView();
  answers(["train/loss"]);
  const { container } = open(<JobMetrics job={PROGRAM} live={NOTHING} />);
  await userEvent.click(await screen.findByRole("button", { name: "Full screen of train/loss" }));
  const dialog = screen.getByRole("dialog", { name: "train/loss" });
  expect(within(dialog).getByRole("figure")).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(within(dialog).getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("dialog")).toBeNull();
});
