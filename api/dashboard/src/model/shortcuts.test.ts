import { expect, test } from "vitest";
import { actionOf, MEANINGS, type Pressed } from "./shortcuts";

const pressed = (key: string, changes: Partial<Pressed> = {}): Pressed => ({ key, command: false, alt: false, ...changes });

test.each([["?", "help"], ["/", "search"], ["j", "next"], ["k", "previous"], ["g", "first"]])("%s alone", (key, kind) => {
  expect(actionOf(pressed(key), false, true)).toEqual({ kind });
  expect(actionOf(pressed(key), false, false)).toBeNull();
});

test("g and a letter lead to a page", () => {
  expect(actionOf(pressed("c"), true, true)).toEqual({ kind: "go", address: "/cluster" });
  expect(actionOf(pressed("x"), true, true)).toBeNull();
});

test("the palette needs Ctrl or Cmd, and no other key has a meaning with them", () => {
  expect(actionOf(pressed("k", { command: true }), false, false)).toEqual({ kind: "palette" });
  expect(actionOf(pressed("j", { command: true }), false, true)).toBeNull();
  expect(actionOf(pressed("j", { alt: true }), false, true)).toBeNull();
});

test("every key of the help does something", () => {
  for (const [keys] of MEANINGS.filter(([one]) => one !== "Enter" && one !== "Ctrl K")) {
    const [first = "", second] = keys.split(" ");
    expect(second === undefined ? actionOf(pressed(first), false, true) : actionOf(pressed(second), true, true), keys).not.toBeNull();
  }
});

test("every page of the bar has keys, which the help has", () => {
  const letters = MEANINGS.filter(([keys]) => keys.startsWith("g ")).map(([keys]) => keys.slice(2));
  const pages = letters.map((key) => actionOf(pressed(key), true, true));
  expect(pages).toEqual(["/", "/new", "/cluster", "/compare", "/sweeps", "/models", "/secrets"].map((address) => ({ kind: "go", address })));
});
