import { fireEvent, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { JobWire } from "../../api/jobs";
import { expectAccessible } from "../../testing/accessible";
import { type SentRequest, given, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { rankWire } from "../../testing/ranks";
import { JobRanks } from "./job-ranks";

const AXES = { pipeline: 1, data: 4, context: 1, tensor: 1 };
const SLOW = { rank: 3, busy_s: 0.1, usual_s: 0.052, message: "rank 3 computes 48 ms longer than its peers" };
const own = (rank: number) => (rank === 3 ? 0.1 : 0.052);

/** Ten samples, of which the last has a slow rank. */
function ranks({ url }: SentRequest): Response {
  const n = Math.min(10, Number(url.searchParams.get("before") ?? 11) - 1);
  const sample = n === 10 ? rankWire(AXES, own, { position: n, step: 100, slow: SLOW }) : rankWire(AXES, () => 0.052, { position: n, step: 10 * n });
  return Response.json({ items: [sample], first: 1, last: 10, next: n > 1 ? n : null });
}

const page = (changes: Partial<JobWire> = {}) => open(<JobRanks job={job({ state: "succeeded", ...changes })} newest={null} />);

test("the slow rank is said in words, and leads to its numbers and its log", async () => {
  given({ "GET /v1/jobs/job-1/ranks": ranks });
  const { container } = page();
  expect(await screen.findByText(SLOW.message)).toBeTruthy();
  await userEvent.click(screen.getByRole("gridcell", { name: /^rank 3/ }));
  const facts = screen.getByRole("region", { name: "Rank 3" });
  expect(facts.textContent).toContain("Compute time100 ms median 52.0 ms");
  expect(facts.textContent).toContain("data 3 on ffffffffffff");
  expect(screen.getByRole("link", { name: "Log of this rank" }).getAttribute("href")).toBe("/jobs/job-1/logs?rank=3");
  await expectAccessible(container);
});

test("the slider fetches an earlier sample, and the newest is a click away", async () => {
  const requests = given({ "GET /v1/jobs/job-1/ranks": ranks });
  page();
  await screen.findByText(SLOW.message);
  fireEvent.change(screen.getByRole("slider", { name: "Sample" }), { target: { value: "4" } });
  expect(await screen.findByText(/^step 40, /)).toBeTruthy();
  expect(requests.at(-1)?.url.search).toBe("?limit=1&before=5");
  expect(screen.queryByText(SLOW.message)).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Newest" }));
  expect(screen.getByText(SLOW.message)).toBeTruthy();
});

test("another measure colours the ranks", async () => {
  given({ "GET /v1/jobs/job-1/ranks": ranks });
  page();
  await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Colour by" }), "Wait time");
  expect(screen.getByRole("grid", { name: "Wait time by rank" })).toBeTruthy();
});

const NONE = { "GET /v1/jobs/job-1/ranks": () => Response.json({ items: [], first: null, last: null, next: null }) };

test.each([
  [{ state: "running" }, "Rank metrics appear a few seconds after the first step."],
  [{ state: "succeeded" }, "No rank metrics of this job are stored."],
  [{ state: "running", world_size: 4097 }, "Jobs of more than 4,096 ranks have no rank metrics."],
] as const)("without rank metrics of %o", async (changes, text) => {
  given(NONE);
  page(changes);
  expect(await screen.findByText(text)).toBeTruthy();
});
