import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { STATES } from "../api/jobs";
import { StateBadge } from "./state-badge";

test("every state is a word", () => {
  render(<>{STATES.map((state) => <StateBadge key={state} state={state} />)}</>);
  for (const state of STATES) expect(screen.getByText(state)).toBeTruthy();
});

test("a state of a newer control plane is shown too", () => {
  render(<StateBadge state="hibernating" />);
  expect(screen.getByText("hibernating").className).toContain("tone-wait");
});
