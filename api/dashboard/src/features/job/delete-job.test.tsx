import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { DeleteJob } from "./delete-job";
import { UndeleteJob } from "./undelete-job";

test("an ended job is deleted after a question", async () => {
  const requests = given({ "DELETE /v1/jobs/job-1": () => Response.json(jobWire({ state: "failed" })) });
  const sent = () => requests.filter(({ method }) => method === "DELETE");
  open(<DeleteJob job={job({ state: "failed" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  expect(sent()).toEqual([]);
  await expectAccessible(screen.getByRole("dialog", { name: "Delete llama-nano?" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the job" }));
  await waitFor(() => { expect(screen.queryByRole("dialog")).toBeNull(); });
  expect(sent().map(({ url }) => url.pathname)).toEqual(["/v1/jobs/job-1"]);
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

test.each([
  [86_400, "It can be restored for 1 day. Then its records and its checkpoints are removed."],
  [0, "It cannot be restored: its records and its checkpoints are removed."],
  [null, "It can be restored."],
])("the dialog says how long a job can be restored where the operator has set %s s", async (undelete_s, text) => {
  given({ "GET /v1/server": () => Response.json({ version: "1", undelete_s }) });
  open(<DeleteJob job={job({ state: "failed" })} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  expect(await screen.findByText(text)).toBeTruthy();
});

test.each([
  ["by its id", "job-1", []],
  ["by its name: the newest of that name that was deleted", "llama-nano", [jobWire()]],
])("a deleted job is restored %s", async (_, id, items) => {
  const requests = given({
    "GET /v1/jobs": ({ url }) => Response.json({ items: url.search === `?name=${id}&deleted=true&limit=1` ? items : [], next: null }),
    "POST /v1/jobs/job-1/undelete": () => Response.json(jobWire()),
  });
  open(<UndeleteJob id={id} />);
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  const sent = () => requests.filter(({ method }) => method === "POST");
  await waitFor(() => { expect(sent()).toHaveLength(1); });
  expect(sent()[0]?.url.pathname).toBe("/v1/jobs/job-1/undelete");
  expect(screen.queryByRole("alert")).toBeNull();
});
