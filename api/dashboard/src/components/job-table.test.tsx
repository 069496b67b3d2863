import { render, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../testing/accessible";
import { job } from "../testing/jobs";
import { JobTable } from "./job-table";

const NOW = new Date("2026-11-21T12:05:00Z");

test("a row tells what a job is and how far it is", async () => {
  const { container } = render(<JobTable jobs={[job()]} now={NOW} />);
  const row = screen.getByRole("row", { name: /llama-nano/ });
  for (const text of ["running", "data 2 (ZeRO-1) × tensor 2", "2.5000", "10.3k", "5 min ago"]) {
    expect(within(row).getByText(text)).toBeTruthy();
  }
  expect(within(row).getByRole<HTMLProgressElement>("progressbar", { name: "Progress of llama-nano" }).value).toBe(150);
  expect(within(row).getByRole("link").getAttribute("href")).toBe("/jobs/job-1");
  await expectAccessible(container);
});

test("a job that has not begun has no numbers", () => {
  render(<JobTable jobs={[job({ state: "queued", progress: null })]} now={NOW} />);
  expect(screen.queryByRole("progressbar")).toBeNull();
  expect(screen.getAllByText("–")).toHaveLength(3);
});
