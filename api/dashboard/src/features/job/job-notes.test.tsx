import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { JobNotes } from "./job-notes";

const field = (name: RegExp) => screen.getByRole<HTMLInputElement>("textbox", { name });

async function retype(name: RegExp, text: string) {
  await userEvent.clear(field(name));
  if (text !== "") await userEvent.type(field(name), text);
}

test("notes are text with its lines, never HTML", () => {
  const notes = "One.\n\n<b>Two</b>";
  const { container } = open(<JobNotes job={job({ notes })} />);
  expect(container.querySelector(".job-notes")?.textContent).toBe(notes);
  expect(container.querySelector("b")).toBeNull();
});

test("the dialog has what the job has, sends what is typed, and closes", async () => {
  const sent = given({ "PATCH /v1/jobs/job-1": () => Response.json(jobWire({ name: "other" })) });
  open(<JobNotes job={job({ labels: { team: "research", x: "1=2" }, notes: "One." })} />);
  await userEvent.click(screen.getByRole("button", { name: "Edit…" }));
  expect([field(/Name/).value, field(/Labels/).value, field(/Notes/).value]).toEqual(["llama-nano", "team=research\nx=1=2", "One."]);
  await expectAccessible(document.body);
  await retype(/Name/, "other");
  await retype(/Labels/, "team=b {Enter}{Enter}x=1=2{Enter}empty=");
  await retype(/Notes/, "One.{Enter}Two.");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => { expect(screen.queryByRole("dialog")).toBeNull(); });
  expect(sent.map(({ body }) => JSON.parse(body) as unknown)).toEqual([
    { name: "other", labels: { team: "b ", x: "1=2", empty: "" }, notes: "One.\nTwo." },
  ]);
});

test("a refusal is shown by field, and the dialog keeps what was typed", async () => {
  const errors = [{ field: "name", message: "It does not match.", remedy: "Use lower-case letters." }];
  const sent = given({ "PATCH /v1/jobs/job-1": () => Response.json({ title: "Refused", code: "invalid_request", errors }, { status: 422 }) });
  open(<JobNotes job={job()} />);
  await userEvent.click(screen.getByRole("button", { name: "Edit…" }));
  await retype(/Labels/, "team");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  expect((await screen.findByRole("alert")).textContent).toContain("“team” is not key=value. Such as team=search.");
  expect(sent).toEqual([]);
  await retype(/Labels/, "");
  await retype(/Name/, "Other");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => { expect(screen.getByRole("alert").textContent).toContain("name It does not match. Use lower-case letters."); });
  expect(field(/Name/).value).toBe("Other");
  expect(sent).toHaveLength(1);
  await expectAccessible(document.body);
});

test("what was not changed is not sent, so that it does not undo what another user has changed", async () => {
  const sent = given({ "PATCH /v1/jobs/job-1": () => Response.json(jobWire({})) });
  open(<JobNotes job={job({ labels: { team: "research" }, notes: "One." })} />);
  await userEvent.click(screen.getByRole("button", { name: "Edit…" }));
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true);
  await retype(/Notes/, "Two.");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => { expect(screen.queryByRole("dialog")).toBeNull(); });
  expect(sent.map(({ body }) => JSON.parse(body) as unknown)).toEqual([{ notes: "Two." }]);
});
