import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { BulkCancel, BulkDelete, BulkPause, BulkResume } from "./bulk-actions";
import { UndoDelete } from "./undo-delete";

const JOBS = [job(), job({ id: "job-2", name: "other" }), job({ id: "job-3", name: "over", state: "failed" })];
const accepted = () => Response.json(jobWire({ state: "cancelling" }), { status: 202 });

test("those that live are cancelled, after the question named them", async () => {
  const requests = given({ "POST /v1/jobs/job-1/cancel": accepted, "POST /v1/jobs/job-2/cancel": accepted });
  const done = vi.fn();
  open(<BulkCancel jobs={JOBS} onDone={done} />);
  await userEvent.click(screen.getByRole("button", { name: "Cancel 2 jobs" }));
  const dialog = screen.getByRole("dialog", { name: "Cancel 2 jobs?" });
  expect(dialog.textContent).toContain("other");
  expect(dialog.textContent).not.toContain("over ");
  await expectAccessible(dialog);
  expect(requests).toEqual([]);
  await userEvent.click(screen.getAllByRole("button", { name: "Cancel 2 jobs" }).at(-1) ?? document.body);
  await expect.poll(() => done.mock.calls.length).toBe(1);
  expect(requests.map(({ url }) => url.pathname).toSorted()).toEqual(["/v1/jobs/job-1/cancel", "/v1/jobs/job-2/cancel"]);
});

test("the one that cannot be cancelled is named, and the others are all the same", async () => {
  const ended = () => Response.json({ title: "The job has ended", code: "job_ended", detail: "It succeeded already." }, { status: 409 });
  const requests = given({ "POST /v1/jobs/job-1/cancel": ended, "POST /v1/jobs/job-2/cancel": accepted });
  const done = vi.fn();
  open(<BulkCancel jobs={JOBS} onDone={done} />);
  await userEvent.click(screen.getByRole("button", { name: "Cancel 2 jobs" }));
  await userEvent.click(screen.getAllByRole("button", { name: "Cancel 2 jobs" }).at(-1) ?? document.body);
  const alert = await screen.findByRole("alert");
  expect(alert.textContent).toContain("1 of 2 jobs were not cancelled");
  expect(alert.textContent).toContain("llama-nano It succeeded already.");
  expect(requests).toHaveLength(2);
  expect(done).not.toHaveBeenCalled();
});

test("jobs that all have ended are nothing to cancel", () => {
  open(<BulkCancel jobs={[job({ state: "failed" })]} onDone={vi.fn()} />);
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Cancel 0 jobs" }).disabled).toBe(true);
});

test("those that run or wait are paused, and those that are paused resumed", async () => {
  const paths = ["/v1/jobs/job-1/pause", "/v1/jobs/job-2/pause", "/v1/jobs/job-4/resume"];
  const requests = given(Object.fromEntries(paths.map((path) => [`POST ${path}`, accepted])));
  const jobs = [job(), job({ id: "job-2", name: "waits", state: "queued" }), job({ id: "job-3", state: "failed" }), job({ id: "job-4", name: "rests", state: "paused" })];
  const done = vi.fn();
  open(<><BulkPause jobs={jobs} onDone={done} /><BulkResume jobs={jobs} onDone={done} /></>);
  for (const name of ["Pause 2 jobs", "Resume 1 job"]) {
    await userEvent.click(screen.getByRole("button", { name }));
    await expectAccessible(screen.getByRole("dialog", { name: `${name}?` }));
    await userEvent.click(screen.getAllByRole("button", { name }).at(-1) ?? document.body);
    await expect.poll(() => screen.queryByRole("dialog")).toBeNull();
  }
  expect(requests.map(({ url }) => url.pathname).toSorted()).toEqual(paths);
  expect(done).toHaveBeenCalledTimes(2);
});

test("where none can be paused or resumed there is no button", () => {
  open(<><BulkPause jobs={[job({ state: "paused" })]} onDone={vi.fn()} /><BulkResume jobs={[job()]} onDone={vi.fn()} /></>);
  expect(screen.queryByRole("button")).toBeNull();
});

test("those that have ended and are not pinned are deleted, and restored by Undo", async () => {
  const requests = given({ "DELETE /v1/jobs/job-3": accepted, "POST /v1/jobs/job-3/undelete": accepted });
  const done = vi.fn();
  const jobs = [...JOBS, job({ id: "job-4", state: "failed", pinned: true })];
  open(<BulkDelete jobs={jobs} onDone={done} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete 1 job" }));
  await expectAccessible(screen.getByRole("dialog", { name: "Delete 1 job?" }));
  await userEvent.click(screen.getAllByRole("button", { name: "Delete 1 job" }).at(-1) ?? document.body);
  await expect.poll(() => done.mock.calls).toEqual([[[jobs[2]]]]);
  const undone = vi.fn();
  open(<UndoDelete jobs={[jobs[2] ?? job()]} onDone={undone} />);
  expect(screen.getByRole("status").textContent).toContain("over was deleted");
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  await expect.poll(() => undone.mock.calls.length).toBe(1);
  expect(requests.filter(({ method }) => method !== "GET").map(({ method, url }) => `${method} ${url.pathname}`)).toEqual(["DELETE /v1/jobs/job-3", "POST /v1/jobs/job-3/undelete"]);
});

test("a deleted job that cannot be restored is named, and those after it are restored", async () => {
  const gone = () => Response.json({ title: "The job was deleted", code: "job_deleted", detail: "It is being removed." }, { status: 410 });
  const requests = given({ "POST /v1/jobs/job-3/undelete": gone, "POST /v1/jobs/job-4/undelete": accepted });
  const done = vi.fn();
  open(<UndoDelete jobs={[job({ id: "job-3", name: "over" }), job({ id: "job-4" })]} onDone={done} />);
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  expect((await screen.findByRole("alert")).textContent).toContain("over It is being removed.");
  expect(requests.map(({ url }) => url.pathname)).toEqual(["/v1/jobs/job-3/undelete", "/v1/jobs/job-4/undelete"]);
  expect(done).not.toHaveBeenCalled();
});

test("those that were deleted can be restored though another refused, which alone is asked for again", async () => {
  const pinned = () => Response.json({ title: "The job is pinned", code: "job_pinned", detail: "It is pinned." }, { status: 409 });
  given({ "DELETE /v1/jobs/job-3": accepted, "DELETE /v1/jobs/job-4": pinned });
  const done = vi.fn();
  const some = vi.fn();
  const jobs = [job({ id: "job-3", name: "over", state: "failed" }), job({ id: "job-4", name: "kept", state: "failed" })];
  open(<BulkDelete jobs={jobs} onDone={done} onSome={some} />);
  await userEvent.click(screen.getByRole("button", { name: "Delete 2 jobs" }));
  await userEvent.click(screen.getAllByRole("button", { name: "Delete 2 jobs" }).at(-1) ?? document.body);
  expect((await screen.findByRole("alert")).textContent).toContain("kept It is pinned.");
  expect(some.mock.calls).toEqual([[[jobs[0]]]]);
  expect(done).not.toHaveBeenCalled();
  expect(await screen.findByRole("dialog", { name: "Delete 1 job?" })).toBeTruthy();
});
