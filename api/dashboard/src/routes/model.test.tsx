import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { modelWire, versionWire } from "../testing/models";
import { ModelPage } from "./model";

const change = { position: 3, kind: "alias_set", version: 1, alias: "best", before: 2, actor: "ada", at: "2026-11-21T12:00:00Z" };
const READ = {
  "GET /v1/models/nano": () => Response.json(modelWire()),
  "GET /v1/models/nano/versions": () => Response.json({ items: [versionWire({ number: 2, aliases: [], pinned: false }), versionWire()], next: null }),
  "GET /v1/models/nano/history": () => Response.json({ items: [change], next: null }),
};

test("versions have their source, state and metrics; the history says who moved an alias", async () => {
  given(READ);
  const { container } = open(<ModelPage name="nano" />, "/models/nano");
  const row = within((await screen.findByRole("button", { name: "Delete… version 1" })).closest("tr") ?? container);
  expect(row.getByRole("link", { name: "job-1" }).getAttribute("href")).toBe("/jobs/job-1/checkpoints");
  expect(row.getByText("loss 2.5")).toBeTruthy();
  expect(screen.getByText("present, not pinned yet")).toBeTruthy();
  expect(await screen.findByText(/best set to version 1, before 2/)).toBeTruthy();
  await expectAccessible(container);
});

test("an alias is moved only from the version that the page shows", async () => {
  const moved = { title: "The alias names another version", status: 409, code: "alias_moved", detail: "best names version 3.", errors: [] };
  const requests = given({ ...READ, "PUT /v1/models/nano/aliases/best": () => Response.json(moved, { status: 409 }) });
  open(<ModelPage name="nano" />, "/models/nano");
  await userEvent.click(await screen.findByRole("button", { name: "Set alias… version 2" }));
  const dialog = screen.getByRole("dialog");
  expect(within(dialog).getByText(/It names version 1 now/)).toBeTruthy();
  await userEvent.click(within(dialog).getByRole("button", { name: "Set the alias" }));
  expect(await within(dialog).findByText("best names version 3.")).toBeTruthy();
  expect(JSON.parse(requests.find(({ method }) => method === "PUT")?.body ?? "")).toEqual({ version: 2, expected: 1 });
  await expectAccessible(dialog);
});

test("a version is deleted after a confirmation, and an alias is removed", async () => {
  const requests = given({
    ...READ,
    "DELETE /v1/models/nano/versions/2": () => Response.json(modelWire()),
    "DELETE /v1/models/nano/aliases/best": () => Response.json(modelWire({ aliases: [] })),
  });
  open(<ModelPage name="nano" />, "/models/nano");
  await userEvent.click(await screen.findByRole("button", { name: "Delete… version 2" }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Delete" }));
  await userEvent.click(screen.getByRole("button", { name: "Remove best" }));
  expect(requests.filter(({ method }) => method === "DELETE").map(({ url }) => url.pathname + url.search)).toEqual([
    "/v1/models/nano/versions/2",
    "/v1/models/nano/aliases/best?expected=1",
  ]);
});
