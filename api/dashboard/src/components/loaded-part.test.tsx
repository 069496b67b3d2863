import { render, screen } from "@testing-library/react";
import { lazy } from "react";
import { expect, test, vi } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { LoadedPart } from "./loaded-part";

/** Fails as a page of a wrong build would. */
function Part({ broken }: { broken: boolean }) {
  if (broken) throw new Error("wrong");
  return <p>the part</p>;
}

test("a part is shown once its scripts are there", async () => {
  const Part = lazy(() => Promise.resolve({ default: () => <p>the part</p> }));
  render(<LoadedPart><Part /></LoadedPart>);
  expect(screen.getByText("Loading…")).toBeTruthy();
  expect(await screen.findByText("the part")).toBeTruthy();
});

test("scripts that are gone are said, with the remedy, and the rest of the page stays", async () => {
  vi.spyOn(console, "error").mockReturnValue(); // React reports what it caught
  const Part = lazy((): Promise<never> => Promise.reject(new TypeError("Failed to fetch dynamically imported module")));
  const { container } = render(<><h1>A job</h1><LoadedPart><Part /></LoadedPart></>);
  expect((await screen.findByRole("alert")).textContent).toContain("older version");
  expect(screen.getByRole("button", { name: "Load the page again" })).toBeTruthy();
  expect(screen.getByRole("heading", { name: "A job" })).toBeTruthy();
  await expectAccessible(container);
});

test("a failure ends with what was shown", () => {
  vi.spyOn(console, "error").mockReturnValue();
  const { rerender } = render(<LoadedPart at="/jobs/1"><Part broken /></LoadedPart>);
  expect(screen.getByRole("alert")).toBeTruthy();
  rerender(<LoadedPart at="/jobs/1"><Part broken={false} /></LoadedPart>);
  expect(screen.getByRole("alert")).toBeTruthy();
  rerender(<LoadedPart at="/jobs/2"><Part broken={false} /></LoadedPart>);
  expect(screen.getByText("the part")).toBeTruthy();
});
