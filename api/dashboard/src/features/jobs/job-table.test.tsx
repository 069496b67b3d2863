import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { job } from "../../testing/jobs";
import { JobTable } from "./job-table";

const NONE: ReadonlySet<string> = new Set();
const NOW = new Date("2026-11-21T12:05:00Z");

test("a row shows what a job is and how far it is", async () => {
  const { container } = render(<JobTable jobs={[job()]} now={NOW} selected={NONE} onSelect={vi.fn()} />);
  const row = screen.getByRole("row", { name: /llama-nano/ });
  for (const text of ["running", "data 2 (ZeRO-1) × tensor 2", "2.5000", "10.3k", "5 min ago"]) {
    expect(within(row).getByText(text)).toBeTruthy();
  }
  expect(within(row).getByRole<HTMLProgressElement>("progressbar", { name: "Progress of llama-nano" }).value).toBe(150);
  expect(within(row).getByRole("link").getAttribute("href")).toBe("/jobs/job-1");
  await expectAccessible(container);
});

test("a job that has not begun has no numbers", () => {
  render(<JobTable jobs={[job({ state: "queued", progress: null })]} now={NOW} selected={NONE} onSelect={vi.fn()} />);
  expect(screen.queryByRole("progressbar")).toBeNull();
  expect(screen.getAllByText("–")).toHaveLength(3);
});

test("a box selects its job and leaves the others as they are", async () => {
  const select = vi.fn<(selected: ReadonlySet<string>) => void>();
  render(<JobTable jobs={[job(), job({ id: "job-2", name: "other" })]} now={NOW} selected={new Set(["job-2"])} onSelect={select} />);
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Select all jobs" }).checked).toBe(false);
  await userEvent.click(screen.getByRole("checkbox", { name: "Select llama-nano" }));
  expect(select).toHaveBeenLastCalledWith(new Set(["job-2", "job-1"]));
  await userEvent.click(screen.getByRole("checkbox", { name: "Select other" }));
  expect(select).toHaveBeenLastCalledWith(new Set());
});
