import { onlineManager } from "@tanstack/react-query";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { PauseJob } from "./pause-job";

test.each([
  ["running", "Pause", "/v1/jobs/job-1/pause"],
  ["queued", "Pause", "/v1/jobs/job-1/pause"],
  ["paused", "Resume", "/v1/jobs/job-1/resume"],
])("a job that is %s has the button %s", async (state, name, path) => {
  const sent = given({ [`POST ${path}`]: () => Response.json(jobWire({ state: "queued" }), { status: 202 }) });
  open(<PauseJob job={job({ state })} />);
  await userEvent.click(screen.getByRole("button", { name }));
  await waitFor(() => { expect(sent.map(({ method, url }) => [method, url.pathname])).toEqual([["POST", path]]); });
  expect(screen.queryByRole("alert")).toBeNull();
});

test.each(["succeeded", "failed", "cancelled", "stopping", "cancelling"])("a job that is %s has none", (state) => {
  open(<PauseJob job={job({ state })} />);
  expect(screen.queryByRole("button")).toBeNull();
});

test("while the gang saves the button waits, and a refusal is shown", async () => {
  given({ "POST /v1/jobs/job-1/pause": () => Response.json({ title: "The job has ended", code: "job_ended" }, { status: 409 }) });
  const { unmount } = open(<PauseJob job={job({ state: "pausing" })} />);
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Pausing…" }).disabled).toBe(true);
  unmount();
  open(<PauseJob job={job({ state: "running" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Pause" }));
  expect((await screen.findByRole("alert")).textContent).toContain("The job has ended");
});

test("a running program is paused after a question, because it may lose what it has not saved", async () => {
  const sent = given({ "POST /v1/jobs/job-1/pause": () => Response.json(jobWire({ state: "pausing" }), { status: 202 }) });
  open(<PauseJob job={job({ state: "running", spec: { command: ["python", "train.py"] } })} />);
  await userEvent.click(screen.getByRole("button", { name: "Pause" }));
  expect(sent).toEqual([]);
  await expectAccessible(screen.getByRole("dialog", { name: "Pause llama-nano?" }));
  await userEvent.click(screen.getByRole("button", { name: "Pause the job" }));
  await waitFor(() => { expect(screen.queryByRole("dialog")).toBeNull(); });
  expect(sent.map(({ url }) => url.pathname)).toEqual(["/v1/jobs/job-1/pause"]);
});

test("without a network it is asked for at once, and never later", async () => {
  onlineManager.setOnline(false);
  const sent = given({ "POST /v1/jobs/job-1/pause": () => Response.json(jobWire({ state: "pausing" }), { status: 202 }) });
  open(<PauseJob job={job({ state: "running" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Pause" }));
  await waitFor(() => { expect(sent.length).toBe(1); });
  onlineManager.setOnline(true);
});

test("a request that had no answer is not said to be repeated", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("refused")));
  open(<PauseJob job={job({ state: "running" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Pause" }));
  expect((await screen.findByRole("alert")).textContent).toMatch(/What was asked may not be done: try again/);
});
