import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Entry } from "../../api/events";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { type SentRequest, given, open } from "../../testing/control-plane";
import { JobHistory } from "./job-history";

const saved = (n: number): Entry => ({ id: `${n}.7.9`, at: new Date(n * 1000), kind: "checkpoint", step: n, path: "/c", bytes: 1, seconds: 0.1 });

/** Places 1 to 120 of a job whose first line is its queuing, and that saved at each of the others. */
function page({ url }: SentRequest): Response {
  const before = Math.min(Number(url.searchParams.get("before")), 121);
  const last = Math.max(1, before - Number(url.searchParams.get("limit")));
  const items = Array.from({ length: before - last }, (_, at): Schema<"HistoryEntry"> => {
    const n = before - 1 - at;
    return n === 1
      ? { position: n, ts: 1, attempt: 0, kind: "state", data: { state: "queued", reason: null, message: null } }
      : { position: n, ts: n, attempt: 1, kind: "checkpoint", data: { step: n, path: "/c", bytes: 1, seconds: 0.1, held_s: 0, kept: null } };
  });
  return Response.json({ items, next: last > 1 ? last : null });
}

const plane = (answer: (request: SentRequest) => Response = page) => given({ "GET /v1/jobs/job-1/history": answer });
const press = async (name: string) => userEvent.click(await screen.findByRole("button", { name }));
const lines = () => screen.getAllByRole("listitem").map((item) => /step (\d+)|queued/.exec(item.textContent)?.[0]);

test("the history goes back to its first entry, a page at a time, and from there to the newest", async () => {
  const requests = plane();
  const { container } = open(<JobHistory id="job-1" live={[saved(119), saved(120)]} />);
  expect(lines()).toEqual(["step 120", "step 119"]);
  expect(requests).toEqual([]);
  await press("Older");
  await expect.poll(lines).toEqual(Array.from({ length: 50 }, (_, at) => `step ${118 - at}`));
  await expectAccessible(container);
  await press("Older");
  await expect.poll(() => lines()[0]).toBe("step 68");
  await press("Older");
  await expect.poll(lines).toEqual([...Array.from({ length: 17 }, (_, at) => `step ${18 - at}`), "queued"]);
  expect(screen.queryByRole("button", { name: "Older" })).toBeNull();
  expect(requests.map(({ url }) => url.searchParams.get("before"))).toEqual(["119", "69", "19"]);
  await press("Newest");
  expect(lines()).toEqual(["step 120", "step 119"]);
  expect(screen.queryByRole("button", { name: "Newest" })).toBeNull();
});

test("without recent events, the older ones begin with the newest", async () => {
  plane();
  open(<JobHistory id="job-1" live={[]} />);
  expect(screen.getByText("No recent events.")).toBeTruthy();
  await press("Older");
  await expect.poll(() => lines()[0]).toBe("step 120");
});

test("a job whose first line is shown has nothing older", () => {
  plane();
  open(<JobHistory id="job-1" live={[saved(1), saved(2)]} />);
  expect(screen.queryByRole("button")).toBeNull();
});

test("a refusal is shown, and the newest entries stay", async () => {
  plane(() => Response.json({ title: "There is no such job", code: "job_not_found" }, { status: 404 }));
  open(<JobHistory id="job-1" live={[saved(9)]} />);
  await press("Older");
  expect((await screen.findByRole("alert")).textContent).toContain("There is no such job");
  expect(lines()).toEqual(["step 9"]);
  await press("Newest");
  expect(screen.queryByRole("alert")).toBeNull();
  expect(screen.getByRole("button", { name: "Older" })).toBeTruthy();
});
