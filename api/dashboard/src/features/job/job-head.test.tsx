import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { job } from "../../testing/jobs";
import { JobHead } from "./job-head";

test("a running job shows how far it is", async () => {
  const { container } = render(<JobHead job={job()} connection="live" action={<button>Cancel job</button>}><nav /></JobHead>);
  expect(screen.getByRole("heading", { name: "llama-nano" })).toBeTruthy();
  expect(screen.getByText("· 25 %")).toBeTruthy();
  expect(screen.getByRole("progressbar", { name: "Progress" }).getAttribute("value")).toBe("150");
  await expectAccessible(container);
});

test("a lost connection is said", () => {
  render(<JobHead job={job()} connection="lost" action={null}>{null}</JobHead>);
  expect(screen.getByRole("status").textContent).toContain("connection lost");
});

test("how far a program is is not known", () => {
  render(<JobHead job={job({ spec: { name: "mine", command: ["true"] }, progress: null })} connection="live" action={null}>{null}</JobHead>);
  expect(screen.queryByRole("progressbar")).toBeNull();
});
