import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { LoggedMetrics } from "./logged-metrics";

// jsdom has no canvas; the browser tests look at the charts.
vi.mock("../../components/chart", () => ({ Chart: ({ title, summary }: { title: string; summary: string }) => <figure aria-label={`${title}. ${summary}`} /> }));

const metric = (name: string): Schema<"LoggedMetric"> => ({ name, last_step: 40, last: 0.25, width: 1 });
const CURVE: Schema<"LoggedCurve"> = { width: 2, starts: [0, 2], mean: [1, 0.5], low: [0.5, 0.25], high: [2, 0.75], last: 0.25, last_step: 40 };

function answers(names: readonly string[]) {
  const asked: string[][] = [];
  given({
    "GET /v1/jobs/job-1/logged-metrics": (request) => {
      const text = new URL(request.url).searchParams.get("text") ?? "";
      return Response.json({ items: names.filter((name) => name.includes(text)).map(metric), next: null });
    },
    "GET /v1/jobs/job-1/logged-curves": (request) => {
      const wanted = new URL(request.url).searchParams.getAll("name");
      asked.push(wanted);
      return Response.json({ series: Object.fromEntries(wanted.map((name) => [name, CURVE])) });
    },
  });
  return asked;
}

test("each metric has a chart by its name", async () => {
  const asked = answers(["loss", "val/acc"]);
  const { container } = open(<LoggedMetrics id="job-1" ended />);
  expect(await screen.findByLabelText(/^loss\. .*at step 40\./)).toBeTruthy();
  expect(screen.getByLabelText(/^val\/acc\./)).toBeTruthy();
  expect(screen.getByRole("status").textContent).toBe("2 metrics");
  expect(asked.at(-1)).toEqual(["loss", "val/acc"]);
  await expectAccessible(container);
});

test("of many metrics the first are shown, more on request, and others by search", async () => {
  answers(Array.from({ length: 30 }, (_, at) => `layer${String(at).padStart(2, "0")}`));
  open(<LoggedMetrics id="job-1" ended />);
  expect((await screen.findByRole("status")).textContent).toBe("The first 8 of 30 metrics");
  await userEvent.click(screen.getByRole("button", { name: "Show 24" }));
  expect(screen.getAllByRole("figure")).toHaveLength(24);
  await userEvent.type(screen.getByRole("searchbox"), "layer29");
  expect(await screen.findByText("1 metric")).toBeTruthy();
  expect(screen.getAllByRole("figure")).toHaveLength(1);
});

test("how to log is said while nothing is logged", async () => {
  answers([]);
  open(<LoggedMetrics id="job-1" ended={false} />);
  expect(await screen.findByText(/Curves appear when the program logs numbers/)).toBeTruthy();
});
