import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { JobFacts } from "./job-facts";

const facts = (labels: Record<string, string>) => open(<JobFacts job={job({ labels })} plan={null} now={new Date("2026-11-21T12:01:00Z")} />);

test("a trial has a link to its sweep", () => {
  facts({ "shardyard/sweep": "sweep-1", "shardyard/trial": "3" });
  const link = screen.getByRole("link", { name: "sweep-1" });
  expect(link.getAttribute("href")).toBe("/sweeps/sweep-1");
  expect(link.closest("dd")?.textContent).toBe("sweep-1, trial 3");
});

test("another job has none", () => {
  facts({ team: "research" });
  expect(screen.queryByText("Sweep")).toBeNull();
});

test("a layout that the advisor chose says for what, and how fast it should be", () => {
  const choice = "chosen by the layout advisor for 4 × CPU; predicted step time 230 ms";
  open(<JobFacts job={job({ layout: "data 4", layout_choice: choice })} plan={null} now={new Date("2026-11-21T12:01:00Z")} />);
  expect(screen.getByText("Layout").nextElementSibling?.textContent).toBe(`data 4, ${choice}`);
});

test.each([
  [{ limit_s: 28800, used_s: 3600, ends_at: "2026-11-21T19:01:00Z" }, "running", "7 h 00 min of 8 h 00 min"],
  [{ limit_s: 28800, used_s: 3600, ends_at: null }, "queued", "7 h 00 min of 8 h 00 min, while it holds devices"],
  [{ limit_s: 28800, used_s: 28801, ends_at: null }, "failed", undefined],
  [null, "running", undefined],
])("what is left of the time for which it may run: %j of a job that is %s", (time_limit, state, shown) => {
  open(<JobFacts job={job({ time_limit, state })} plan={null} now={new Date("2026-11-21T12:01:00Z")} />);
  expect(screen.queryByText("Time left")?.nextElementSibling?.textContent).toBe(shown);
});

test.each([
  ["paused", null, "Since its start", "1 h 00 min"],
  ["succeeded", "2026-11-21T12:30:04Z", "From start to end", "30 min 00 s"],
])("a job that is %s is not said to run all the time since its start", (state, finished_at, name, text) => {
  open(<JobFacts job={job({ state, finished_at, device_s: 120 })} plan={null} now={new Date("2026-11-21T13:00:04Z")} />);
  expect(screen.getByText(name).nextElementSibling?.textContent).toBe(text);
  expect(screen.getByText("Device time").nextElementSibling?.textContent).toBe("2 min 00 s");
  expect(screen.queryByText(/^(Running|Ran) for$/)).toBeNull();
});

test("a certificate has a link to its page, and a job without one has no such line", () => {
  const certificate = { equal: true, layout: "data 2", extra: null, key: "0123456789abcdef", made_at: "2026-11-21T12:00:00Z", actor: "ada" };
  const { unmount } = open(<JobFacts job={job({ certificate })} plan={null} now={new Date("2026-11-21T12:01:00Z")} />);
  const link = screen.getByRole("link", { name: "Equal to one process" });
  expect(link.getAttribute("href")).toBe("/v1/jobs/job-1/certificate/page");
  expect(link.closest("dd")?.textContent).toBe("Equal to one process (data 2; key 0123456789abcdef)");
  unmount();
  const rounded = { ...certificate, extra: "rounds the same blocks" as const };
  const shown = open(<JobFacts job={job({ certificate: rounded })} plan={null} now={new Date("2026-11-21T12:01:00Z")} />);
  expect(screen.getByRole("link", { name: "Equal to one process that rounds the same blocks" })).toBeTruthy();
  shown.unmount();
  facts({});
  expect(screen.queryByText("Certificate")).toBeNull();
});
