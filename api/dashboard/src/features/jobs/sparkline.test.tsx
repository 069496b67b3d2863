import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { Sparkline } from "./sparkline";

const path = () => screen.getByRole("img").querySelector("path")?.getAttribute("d") ?? "";

test("a band from the highest to the lowest, and its ends in words", () => {
  render(<Sparkline name="nano" curve={{ width: 2, low: [4, 1], high: [5, 3] }} />);
  expect(screen.getByRole("img", { name: "Loss of nano: from 5.0000 to 1.0000" })).toBeTruthy();
  expect(path()).toBe("M0.0 1.0L96.0 12.0L96.0 23.0L0.0 6.5Z");
});

test("buckets without a loss are passed over, and one bucket is a picture too", () => {
  render(<Sparkline name="nano" curve={{ width: 1, low: [null, 2], high: [null, 2] }} />);
  expect(path()).toMatch(/^M0\.0 [\d.]+L0\.0 [\d.]+Z$/);
});

test("nothing known, nothing drawn", () => {
  const { container } = render(<Sparkline name="nano" curve={{ width: 1, low: [null], high: [null] }} />);
  expect(container.innerHTML).toBe("");
});
