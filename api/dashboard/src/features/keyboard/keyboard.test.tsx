import { fireEvent, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { jobWire } from "../../testing/jobs";
import { Keyboard } from "./keyboard";

beforeEach(() => { localStorage.clear(); });

const plane = () => given({ "GET /v1/jobs": ({ url }) => Response.json({ items: url.searchParams.get("text") === "llama" ? [jobWire({ id: "job-7", name: "llama-7" })] : [], next: null }) });
const press = (key: string, changes = {}) => { fireEvent.keyDown(document.activeElement ?? document.body, { key, ...changes }); };

test("a page, an action of the open page and a job are found and run", async () => {
  plane();
  let pressed = 0;
  const { container } = open(<><Keyboard /><div className="job-actions"><button onClick={() => { pressed += 1; }}>Cancel job</button><button disabled>Pausing…</button></div></>, "/");
  press("k", { ctrlKey: true });
  const box = screen.getByRole("combobox", { name: "Find a page, a job or an action" });
  await expectAccessible(container);
  await userEvent.type(box, "cancel{Enter}");
  expect([pressed, screen.queryByRole("dialog")]).toEqual([1, null]);
  press("k", { metaKey: true });
  await userEvent.type(screen.getByRole("combobox"), "clus{Enter}");
  expect(location.pathname).toBe("/cluster");
  press("k", { ctrlKey: true });
  await userEvent.type(screen.getByRole("combobox"), "sweeps{Enter}");
  expect(location.pathname).toBe("/sweeps");
  press("k", { ctrlKey: true });
  expect(screen.queryByRole("option", { name: /Pausing/ })).toBeNull();
  await userEvent.type(screen.getByRole("combobox"), "llama");
  await userEvent.click(await screen.findByRole("option", { name: /llama-7/ }));
  expect(location.pathname).toBe("/jobs/job-7");
});

test("arrows choose, and go round", async () => {
  plane();
  open(<Keyboard />, "/");
  press("k", { ctrlKey: true });
  const box = screen.getByRole("combobox");
  await userEvent.type(box, "{ArrowDown}");
  expect(screen.getByRole("option", { selected: true }).textContent).toContain("New job");
  await userEvent.type(box, "{ArrowUp}{ArrowUp}");
  expect(screen.getByRole("option", { selected: true }).textContent).toContain("Show the keys");
  await userEvent.type(box, "{Enter}");
  expect(screen.getByRole("dialog", { name: "Keys" })).toBeTruthy();
});

test("letters go to pages, and can be turned off", async () => {
  plane();
  const { container } = open(<Keyboard />, "/");
  press("g");
  press("s");
  expect(location.pathname).toBe("/secrets");
  press("c");
  expect(location.pathname).toBe("/secrets");
  press("?");
  await expectAccessible(container);
  press("g");
  press("c");
  expect(location.pathname).toBe("/secrets"); // a dialog is open
  await userEvent.click(screen.getByRole("checkbox", { name: "Keys that are single letters" }));
  await userEvent.click(screen.getByRole("button", { name: "Close" }));
  press("?");
  expect(screen.queryByRole("dialog")).toBeNull();
  press("k", { ctrlKey: true });
  expect(screen.getByRole("dialog")).toBeTruthy();
});

test.each(["input", "textarea", "select"])("no key fires in a %s", (Name) => {
  plane();
  open(<><Keyboard /><label>Here <Name /></label></>, "/");
  screen.getByLabelText("Here").focus();
  for (const key of ["?", "g", "c"]) press(key);
  press("k", { ctrlKey: true });
  expect([screen.queryByRole("dialog"), location.pathname]).toEqual([null, "/"]);
});
