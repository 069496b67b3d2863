import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { job } from "../../testing/jobs";
import { JobHead } from "./job-head";

test("a running job shows how far it is and how long it will take", async () => {
  const { container } = render(<JobHead job={job()} validation={2.61} connection="live" action={null} />);
  for (const text of ["25 %", "2.5000", "2.6100", "10,342", "614k", "4 min 10 s"]) expect(screen.getByText(text)).toBeTruthy();
  await expectAccessible(container);
});

test("a failed job shows its whole message", () => {
  const message = "ValueError: boom on rank 3\nTraceback (most recent call last):\n  File x";
  render(<JobHead job={job({ state: "failed", reason: "exception", message })} validation={null} connection="ended" action={null} />);
  expect(screen.getByRole("alert").textContent).toContain("ValueError: boom on rank 3");
  expect(screen.getByLabelText("Details").textContent).toContain("File x");
});

test("a lost connection is said", () => {
  render(<JobHead job={job()} validation={null} connection="lost" action={null} />);
  expect(screen.getByRole("status").textContent).toContain("connection lost");
});

test("why a job waits is said; a code alone is not", () => {
  const waiting = job({ state: "queued", reason: "waiting_for_devices", message: "Needs 4 devices; 2 are free." });
  const { rerender } = render(<JobHead job={waiting} validation={null} connection="live" action={null} />);
  expect(screen.getByRole("note").textContent).toBe("waiting_for_devices Needs 4 devices; 2 are free.");
  rerender(<JobHead job={job({ reason: "first_step" })} validation={null} connection="live" action={null} />);
  expect(screen.queryByRole("note")).toBeNull();
});

test("a job that runs a command has no numbers of a training", () => {
  render(<JobHead job={job({ spec: { name: "mine", command: ["true"] }, world_size: 4, attempt: 2, progress: null })} validation={null} connection="live" action={null} />);
  expect(screen.getByText("Ranks").nextSibling?.textContent).toBe("4");
  for (const text of ["Loss", "Step", "Tokens"]) expect(screen.queryByText(text)).toBeNull();
});
