import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { ClusterPage } from "../../routes/cluster";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { cordonWire, nodeWire } from "../../testing/nodes";

/** A control plane with one machine, which cordons it, lifts the cordon, and refuses a text that has a tab in it. */
function plane(cordoned = false) {
  let held = cordoned ? cordonWire : null;
  const machine = () => nodeWire({ cordon: held, in_use: held === null });
  const requests = given({
    "GET /v1/nodes": () => Response.json({ items: [machine()] }),
    "GET /v1/cordons": () => Response.json({ items: held ? [held] : [] }),
    "POST /v1/nodes/0123456789abcdef/cordon": ({ url }) => {
      const message = url.searchParams.get("message") ?? "";
      if (message.includes("\t")) return Response.json({ title: "The request is not valid", code: "invalid_request", errors: [{ field: "message", message: "A tab is in it." }] }, { status: 422 });
      held = { ...cordonWire, message };
      return Response.json(machine());
    },
    "POST /v1/nodes/0123456789abcdef/uncordon": () => {
      held = null;
      return Response.json(machine());
    },
  });
  const sent = () => requests.filter(({ method }) => method === "POST").map(({ url }) => url.pathname + url.search);
  return { sent, ...open(<ClusterPage />, "/cluster") };
}

const press = async (name: string) => userEvent.click(await screen.findByRole("button", { name }));

test.each([
  ["until lifted", ""],
  ["1 hour", "?seconds=3600"],
  ["1 day", "?seconds=86400"],
])("a machine is cordoned %s, after asking", async (length, query) => {
  const { sent } = plane();
  await press("Cordon… gpu-1");
  const dialog = screen.getByRole("dialog", { name: "Cordon gpu-1?" });
  expect(dialog.textContent).toContain("Jobs that run on it continue.");
  await expectAccessible(dialog);
  await userEvent.selectOptions(screen.getByLabelText("Duration"), length);
  expect(sent()).toEqual([]);
  await press("Cordon");
  await expect.poll(sent).toEqual([`/v1/nodes/0123456789abcdef/cordon${query}`]);
  expect(await screen.findByRole("button", { name: "Lift cordon… gpu-1" })).toBeTruthy();
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("for a number of hours, with a reason; card and table show it at once", async () => {
  const { sent, container } = plane();
  await press("Cordon… gpu-1");
  await userEvent.selectOptions(screen.getByLabelText("Duration"), "number of hours");
  await userEvent.clear(screen.getByLabelText("Hours"));
  await userEvent.type(screen.getByLabelText("Hours"), "1.5");
  await userEvent.type(screen.getByLabelText("Reason (shown to others)"), "fan & bearings");
  await press("Cordon");
  await expect.poll(sent).toEqual(["/v1/nodes/0123456789abcdef/cordon?seconds=5400&message=fan+%26+bearings"]);
  const card = within(screen.getByRole("article", { name: "gpu-1" }));
  expect(await card.findByText(/Cordoned by local .*: fan & bearings/)).toBeTruthy();
  expect(await within(screen.getByRole("region", { name: "Cordons" })).findByText("fan & bearings")).toBeTruthy();
  await expectAccessible(container);
});

test("a refusal is shown in the dialog, and what was typed stays", async () => {
  const { sent } = plane();
  await press("Cordon… gpu-1");
  const why = screen.getByLabelText("Reason (shown to others)");
  await userEvent.click(why);
  await userEvent.paste("a\tb");
  await press("Cordon");
  expect((await screen.findByRole("alert")).textContent).toContain("A tab is in it.");
  expect((why as HTMLInputElement).value).toBe("a\tb");
  await press("Leave it in use");
  expect(screen.queryByRole("dialog")).toBeNull();
  expect(sent()).toHaveLength(1);
});

test("a cordon is lifted, after asking", async () => {
  const { sent } = plane(true);
  await press("Lift cordon… gpu-1");
  const dialog = screen.getByRole("dialog", { name: "Lift the cordon of gpu-1?" });
  await expectAccessible(dialog);
  await press("Keep it");
  await press("Lift cordon… gpu-1");
  await press("Lift the cordon");
  await expect.poll(sent).toEqual(["/v1/nodes/0123456789abcdef/uncordon"]);
  expect(await screen.findByRole("button", { name: "Cordon… gpu-1" })).toBeTruthy();
});
