import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { SEARCH_MS } from "../../api/http";
import { retryJob } from "../../api/jobs";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { PinJob } from "./pin-job";
import { RetryJob } from "./retry-job";

test("a retry opens the new job, and is sent with one key", async () => {
  let answers = 0;
  const sent = given({
    "POST /v1/jobs/job-1/retry": () => (answers++ === 0 ? Response.json({ title: "Busy", code: "database_busy" }, { status: 503 }) : Response.json(jobWire({ id: "job-2" }), { status: 201 })),
  });
  open(<RetryJob job={job({ state: "failed" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Retry" }));
  expect((await screen.findByRole("alert")).textContent).toContain("Busy");
  await userEvent.click(screen.getByRole("button", { name: "Retry" }));
  await waitFor(() => { expect(location.pathname).toBe("/jobs/job-2"); });
  expect(new Set(sent.map(({ headers }) => headers.get("Idempotency-Key"))).size).toBe(1);
});

test("a retry, which is checked as a submission is, waits as long", async () => {
  const limit = vi.spyOn(AbortSignal, "timeout");
  given({ "POST /v1/jobs/job-1/retry": () => Response.json(jobWire({ id: "job-2" }), { status: 201 }) });
  await retryJob("job-1", "key");
  expect(limit).toHaveBeenCalledExactlyOnceWith(SEARCH_MS);
});

test.each(["running", "succeeded", "cancelling"])("a job that is %s is not retried", (state) => {
  open(<RetryJob job={job({ state })} />);
  expect(screen.queryByRole("button")).toBeNull();
});

test.each([[false, "Pin"], [true, "Unpin"]])("a job that is pinned (%s) has the button %s", async (pinned, name) => {
  const sent = given({ "PATCH /v1/jobs/job-1": () => Response.json(jobWire({ pinned: !pinned })) });
  open(<PinJob job={job({ pinned })} />);
  await userEvent.click(screen.getByRole("button", { name }));
  await waitFor(() => { expect(sent.map(({ body }) => body)).toEqual([JSON.stringify({ pinned: !pinned })]); });
});
