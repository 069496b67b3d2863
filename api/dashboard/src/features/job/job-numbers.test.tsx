import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { job } from "../../testing/jobs";
import { JobNumbers, Why } from "./job-numbers";

test("a running job shows its newest numbers and how long it will take", async () => {
  const { container } = render(<JobNumbers job={job()} validation={2.61} />);
  for (const text of ["2.5000", "2.6100", "10,342", "614k", "4 min 10 s"]) expect(screen.getByText(text)).toBeTruthy();
  await expectAccessible(container);
});

test("a job that runs a command has no numbers of a training", () => {
  render(<JobNumbers job={job({ spec: { name: "mine", command: ["true"] }, world_size: 4, attempt: 2, progress: null })} validation={null} />);
  expect(screen.getByText("Ranks").nextSibling?.textContent).toBe("4");
  for (const text of ["Loss", "Tokens"]) expect(screen.queryByText(text)).toBeNull();
});

test("a failed job shows its whole message", async () => {
  const message = "ValueError: boom on rank 3\nTraceback (most recent call last):\n  File x";
  const { container } = render(<Why job={job({ state: "failed", reason: "exception", message })} />);
  expect(screen.getByRole("alert").textContent).toContain("ValueError: boom on rank 3");
  expect(screen.getByLabelText("Details").textContent).toContain("File x");
  await expectAccessible(container);
});

test("why a job waits is said; a code alone is not", () => {
  const waiting = job({ state: "queued", reason: "waiting_for_devices", message: "Needs 4 devices; 2 are free." });
  const { rerender } = render(<Why job={waiting} />);
  expect(screen.getByRole("note").textContent).toBe("waiting_for_devices Needs 4 devices; 2 are free.");
  rerender(<Why job={job({ reason: "first_step" })} />);
  expect(screen.queryByRole("note")).toBeNull();
});
