import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { Keyboard } from "../features/keyboard/keyboard";
import { given, open } from "../testing/control-plane";
import { keep, readKept } from "./browser-storage";
import { useColumns } from "./use-columns";
import { followTheme, useTheme } from "./use-theme";

/** As a browser that blocks all data of sites: the properties themselves throw. */
function refuse() {
  for (const storage of ["localStorage", "sessionStorage"] as const) {
    vi.spyOn(globalThis, storage, "get").mockImplementation(() => { throw new DOMException("Access is denied", "SecurityError"); });
  }
}

test("what is kept is read again, until it is removed", () => {
  expect(keep("shardyard.test", "a", "sessionStorage")).toBe(true);
  expect([readKept("shardyard.test", "sessionStorage"), readKept("shardyard.test")]).toEqual(["a", null]);
  keep("shardyard.test", null, "sessionStorage");
  expect(readKept("shardyard.test", "sessionStorage")).toBeNull();
});

test("where the browser keeps nothing, nothing is read", () => {
  refuse();
  expect([keep("shardyard.test", "a"), readKept("shardyard.test"), readKept("shardyard.test", "sessionStorage")]).toEqual([false, null, null]);
});

function Page() {
  const [theme, choose] = useTheme();
  const { columns, change } = useColumns();
  return <><Keyboard /><button onClick={() => { choose("dark"); }}>{theme}</button><button onClick={() => { change(["label.team"], ""); }}>{columns.join() || "no columns"}</button></>;
}

test("pages are drawn and can be set where the browser keeps nothing", async () => {
  refuse();
  given({});
  vi.stubGlobal("matchMedia", () => Object.assign(new EventTarget(), { matches: false }));
  followTheme();
  open(<Page />);
  await userEvent.click(screen.getByRole("button", { name: "system" }));
  expect(await screen.findByRole("button", { name: "dark" })).toBeTruthy();
  expect(document.documentElement.dataset.theme).toBe("dark");
  await userEvent.click(screen.getByRole("button", { name: "no columns" }));
  expect(await screen.findByRole("button", { name: "label.team" })).toBeTruthy();
  delete document.documentElement.dataset.chosenTheme;
});
