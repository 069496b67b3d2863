import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { makeClient } from "../../api/query-client";
import { expectAccessible } from "../../testing/accessible";
import { job, jobWire } from "../../testing/jobs";
import { CancelJob } from "./cancel-job";

function open(state: string, answer: () => Response) {
  const fetch = vi.fn<(path: string, init: RequestInit) => Promise<Response>>(() => Promise.resolve(answer()));
  vi.stubGlobal("fetch", fetch);
  render(<QueryClientProvider client={makeClient()}><CancelJob job={job({ state })} /></QueryClientProvider>);
  return fetch;
}

test("a job is cancelled after the question was answered", async () => {
  const fetch = open("running", () => Response.json(jobWire({ state: "cancelling" }), { status: 202 }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
  expect(fetch).not.toHaveBeenCalled();
  await expectAccessible(screen.getByRole("dialog", { name: "Cancel llama-nano?" }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel the job" }));
  expect(await screen.findByRole("button", { name: "Cancelling…" })).toBeTruthy();
  expect(fetch.mock.calls.map(([path, init]) => [path, init.method])).toEqual([["/v1/jobs/job-1/cancel", "POST"]]);
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("a job that was kept is left alone", async () => {
  const fetch = open("running", () => Response.error());
  await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
  await userEvent.click(screen.getByRole("button", { name: "Keep it running" }));
  expect(screen.queryByRole("dialog")).toBeNull();
  expect(fetch).not.toHaveBeenCalled();
});

test("a refusal is shown in the dialog", async () => {
  open("running", () => Response.json({ title: "The job has ended", code: "job_ended" }, { status: 409 }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel job" }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel the job" }));
  expect((await screen.findByRole("alert")).textContent).toContain("The job has ended");
});

test.each(["succeeded", "failed", "cancelled"])("a %s job cannot be cancelled", (state) => {
  open(state, () => Response.error());
  expect(screen.queryByRole("button")).toBeNull();
});
