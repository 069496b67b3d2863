import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Route } from "wouter";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { sweepWire, trialWire } from "../testing/sweeps";
import { SweepPage } from "./sweep";

vi.mock("../components/chart", () => import("../testing/chart"));

const TRIALS = [
  trialWire({ number: 0, rungs: [3, 2.7] }),
  trialWire({ number: 1, state: "stopped", job: "job-1", job_state: "cancelled", parameters: { "train.optimizer.lr": 0.009, "train.global_batch": 16 }, rungs: [4], value: 4, step: 10 }),
  trialWire({ number: 2, state: "active", job: "job-2", job_state: "queued", parameters: { "train.optimizer.lr": 0.002, "train.global_batch": 16 }, value: null, step: null }),
  trialWire({ number: 3, state: "refused", job: null, job_state: null, value: null, step: null, message: "64 sequences do not fit." }),
];

const answers = (state: "running" | "succeeded" = "running") => ({
  "GET /v1/sweeps/sweep-1": () => Response.json(sweepWire({ state })),
  "GET /v1/sweeps/sweep-1/trials": () => Response.json({ items: TRIALS, as_of: 7.5 }),
});

const numbers = () => within(screen.getByRole("region", { name: "Table of trials" })).getAllByRole("rowheader").map((cell) => cell.textContent);

test("a sweep has its best trial, its chart, its rungs and its trials", async () => {
  given(answers());
  const { container } = open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
  expect(await screen.findByRole("figure", { name: "Best loss so far. It is 2.5 after trial 0." })).toBeTruthy();
  const best = within(screen.getByRole("region", { name: "Best trial" }));
  expect(best.getByLabelText("Parameters of the best trial").textContent).toBe("train.optimizer.lr: 0.001\ntrain.global_batch: 8");
  expect(best.getByRole("link", { name: "Its job" }).getAttribute("href")).toBe("/jobs/job-0");
  expect([...screen.getByRole("region", { name: "Rungs" }).querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent))).toEqual([
    ["10", "2", "1", "–"],
    ["30", "1", "1", "–"],
  ]);
  expect(numbers()).toEqual(["0 best", "1", "2", "3"]);
  expect(screen.getByText("64 sequences do not fit.")).toBeTruthy();
  expect(screen.getByText("queued")).toBeTruthy();
  expect(screen.getByRole("link", { name: "1" }).getAttribute("href")).toBe("/jobs/job-1");
  expect(screen.queryByRole("link", { name: "3" })).toBeNull();
  await expectAccessible(container);
});

test("any column orders the trials, and is in the address", async () => {
  given(answers("succeeded"));
  open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
  const order = async (name: string) => { fireEvent.click(await screen.findByRole("button", { name })); };
  await order("loss");
  await order("loss ↑");
  expect(numbers()).toEqual(["1", "0 best", "2", "3"]);
  expect(screen.getByRole("columnheader", { name: "loss ↓" }).getAttribute("aria-sort")).toBe("descending");
  expect(location.search).toBe("?by=-value");
  await order("lr");
  expect(numbers()).toEqual(["0 best", "3", "2", "1"]);
});

test("keys at the end of an axis filter the table, and Escape takes that back", async () => {
  given(answers());
  const { container } = open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
  const lowest = await screen.findByRole("slider", { name: "Lowest global_batch" });
  expect(lowest.getAttribute("aria-valuetext")).toBe("8");
  fireEvent.keyDown(lowest, { key: "ArrowUp" });
  await waitFor(() => { expect(numbers()).toEqual(["1", "2"]); });
  expect(screen.getByText("2 of 4 pass the brushes")).toBeTruthy();
  expect(lowest.getAttribute("aria-valuetext")).toBe("16");
  expect(container.querySelector(".parallel-lines .out")).toBeTruthy();
  await expectAccessible(container);
  fireEvent.keyDown(lowest, { key: "Escape" });
  await waitFor(() => { expect(numbers()).toHaveLength(4); });
  fireEvent.keyDown(screen.getByRole("slider", { name: "Highest loss" }), { key: "Home" });
  await waitFor(() => { expect(numbers()).toEqual(["0 best"]); });
  fireEvent.click(screen.getByRole("button", { name: "Show all trials" }));
  await waitFor(() => { expect(numbers()).toHaveLength(4); });
});

test("a thousand trials are shown a page at a time", async () => {
  given({ ...answers("succeeded"), "GET /v1/sweeps/sweep-1/trials": () => Response.json({ items: Array.from({ length: 1000 }, (_, number) => trialWire({ number, value: number })), as_of: 7.5 }) });
  const { container } = open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
  fireEvent.click(await screen.findByRole("button", { name: "Next" }));
  expect(numbers()[0]).toBe("50");
  expect(numbers()).toHaveLength(50);
  expect(container.querySelectorAll(".parallel-lines path").length).toBeLessThan(10);
});

test("a sweep is cancelled after a confirmation", async () => {
  let cancelled = false;
  given({
    ...answers(),
    "GET /v1/sweeps/sweep-1": () => Response.json(sweepWire({ state: cancelled ? "cancelled" : "running" })),
    "POST /v1/sweeps/sweep-1/cancel": () => {
      cancelled = true;
      return Response.json(sweepWire({ state: "cancelling" }), { status: 202 });
    },
  });
  open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
  fireEvent.click(await screen.findByRole("button", { name: "Cancel sweep" }));
  await expectAccessible(screen.getByRole("dialog"));
  expect(screen.getByText(/The 2 trials that have not ended/)).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Cancel the sweep" }));
  await waitFor(() => { expect(screen.queryByRole("button", { name: /Cancel/ })).toBeNull(); });
});

test("a sweep is read until it has ended, and its trials once more", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    let ended = false;
    const requests = given({ ...answers(), "GET /v1/sweeps/sweep-1": () => Response.json(sweepWire({ state: ended ? "succeeded" : "running" })) });
    const of = (path: string) => requests.filter(({ url }) => url.pathname === path).length;
    open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
    await screen.findByRole("region", { name: "Table of trials" });
    await vi.advanceTimersByTimeAsync(6500);
    expect(of("/v1/sweeps/sweep-1")).toBeGreaterThanOrEqual(3);
    ended = true;
    await vi.advanceTimersByTimeAsync(2500);
    await screen.findByText("succeeded", { selector: ".sweep-head *" });
    await vi.advanceTimersByTimeAsync(100);
    const before = requests.length;
    await vi.advanceTimersByTimeAsync(10_000);
    expect(requests.length).toBe(before);
    expect(requests.at(-1)?.url.pathname).toBe("/v1/sweeps/sweep-1/trials");
  } finally {
    vi.useRealTimers();
  }
});

test("while a sweep runs only the trials that changed are read again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    const changed = trialWire({ number: 2, state: "succeeded", job: "job-2", value: 1.25, step: 90 });
    const requests = given({
      ...answers(),
      "GET /v1/sweeps/sweep-1/trials": ({ url }) => Response.json(url.searchParams.has("since") ? { items: [changed], as_of: 9.25 } : { items: TRIALS, as_of: 7.5 }),
    });
    open(<SweepPage id="sweep-1" />, "/sweeps/sweep-1");
    await screen.findByText("queued");
    await vi.advanceTimersByTimeAsync(4500);
    await waitFor(() => { expect(screen.queryByText("queued")).toBeNull(); });
    expect(numbers()).toEqual(["0 best", "1", "2", "3"]);
    expect(screen.getByText("64 sequences do not fit.")).toBeTruthy();
    const since = requests.filter(({ url }) => url.pathname.endsWith("/trials")).map(({ url }) => url.searchParams.get("since"));
    expect(since.slice(0, 3)).toEqual([null, "7.5", "9.25"]);
  } finally {
    vi.useRealTimers();
  }
});

test("a name in the address is replaced by the sweep's id: later it may name another one", async () => {
  const requests = given({ ...answers("succeeded"), "GET /v1/sweeps/tune": () => Response.json(sweepWire({ state: "succeeded" })) });
  open(<Route path="/sweeps/:id">{({ id }) => <SweepPage key={id} id={id} />}</Route>, "/sweeps/tune?by=-value");
  expect(await screen.findByRole("region", { name: "Table of trials" })).toBeTruthy();
  expect(location.pathname + location.search).toBe("/sweeps/sweep-1?by=-value");
  expect(numbers()).toEqual(["1", "0 best", "2", "3"]);
  expect(requests.filter(({ url }) => url.pathname === "/v1/sweeps/tune")).toHaveLength(1);
});

test("a sweep that does not exist leads to the list", async () => {
  given({});
  open(<SweepPage id="gone" />, "/sweeps/gone");
  expect((await screen.findByRole("link", { name: "All sweeps" })).getAttribute("href")).toBe("/sweeps");
});
