import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { DeleteJob } from "./delete-job";
import { UndeleteJob } from "./undelete-job";

test("an ended job is deleted after a question", async () => {
  const sent = given({ "DELETE /v1/jobs/job-1": () => Response.json(jobWire({ state: "failed" })) });
  open(<DeleteJob job={job({ state: "failed" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  expect(sent).toEqual([]);
  await expectAccessible(screen.getByRole("dialog", { name: "Delete llama-nano?" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the job" }));
  await waitFor(() => { expect(screen.queryByRole("dialog")).toBeNull(); });
  expect(sent.map(({ method, url }) => [method, url.pathname])).toEqual([["DELETE", "/v1/jobs/job-1"]]);
});

test("the job that still needs it is named in the dialog", async () => {
  given({ "DELETE /v1/jobs/job-1": () => Response.json({ title: "Another job continues from it", code: "job_in_use", detail: "job-9 continues from it." }, { status: 409 }) });
  open(<DeleteJob job={job({ state: "failed" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the job" }));
  expect((await screen.findByRole("alert")).textContent).toContain("job-9");
});

test.each([job(), job({ state: "failed", pinned: true })])("a job that lives or is pinned has no such button", (kept) => {
  open(<DeleteJob job={kept} />);
  expect(screen.queryByRole("button")).toBeNull();
});

test("a deleted job is restored", async () => {
  const sent = given({ "POST /v1/jobs/job-1/undelete": () => Response.json(jobWire()) });
  open(<UndeleteJob id="job-1" />);
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  await waitFor(() => { expect(sent).toHaveLength(1); });
  expect(screen.queryByRole("alert")).toBeNull();
});
