import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { SpecView } from "./spec-view";

const SPEC = { name: "a", train: { steps: 3 } };

test("a spec is YAML first and JSON by arrow key", async () => {
  const { container } = render(<SpecView spec={SPEC} />);
  expect(screen.getByRole("tabpanel").textContent).toBe("name: a\ntrain:\n  steps: 3\n");
  await userEvent.click(screen.getByRole("tab", { name: "YAML" }));
  await userEvent.keyboard("{ArrowRight}");
  expect(JSON.parse(screen.getByRole("tabpanel").textContent)).toEqual(SPEC);
  expect(document.activeElement?.textContent).toBe("JSON");
  await expectAccessible(container);
});

test("what is shown can be copied", async () => {
  const user = userEvent.setup();
  render(<SpecView spec={SPEC} />);
  await user.click(screen.getByRole("button", { name: "Copy" }));
  expect(await screen.findByText("Copied")).toBeTruthy();
  expect(await navigator.clipboard.readText()).toBe("name: a\ntrain:\n  steps: 3\n");
});
