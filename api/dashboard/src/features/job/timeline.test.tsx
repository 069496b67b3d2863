import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { timeline } from "../../testing/history";
import { StateTimeline } from "./timeline";

test("a timeline is in words too, with the colours that are on it", async () => {
  const { container } = render(<StateTimeline line={timeline()} now={new Date(1_100_000)} />);
  expect(screen.getByRole("img", { name: "1 min 40 s, 2 attempts, 1 incident." })).toBeTruthy();
  expect([...container.querySelectorAll(".timeline-legend li")].map((item) => item.textContent)).toEqual(["queued", "running", "incident", "attempt 2, generation 1"]);
  expect(container.querySelector(".timeline-mark title")?.textContent).toMatch(/^incident rank_lost, rank 1, step 120, /);
  await expectAccessible(container);
});

test("a timeline that began earlier says so", () => {
  render(<StateTimeline line={timeline({ complete: false })} now={new Date(1_100_000)} />);
  expect(screen.getByRole("img", { name: /^The newest part/ })).toBeTruthy();
});
