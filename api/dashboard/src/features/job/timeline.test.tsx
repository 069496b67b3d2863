import { render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, lost, open } from "../../testing/control-plane";
import { timeline } from "../../testing/history";
import { JobTimeline } from "./job-timeline";
import { StateTimeline } from "./timeline";

afterEach(() => { vi.useRealTimers(); });

test("a timeline is in words too, with the colours that are on it", async () => {
  const { container } = render(<StateTimeline line={timeline()} now={new Date(1_100_000)} />);
  expect(screen.getByRole("img", { name: "1 min 40 s, 2 attempts, 1 incident." })).toBeTruthy();
  expect([...container.querySelectorAll(".timeline-legend li")].map((item) => item.textContent)).toEqual(["queued", "running", "incident", "attempt 2, generation 1"]);
  expect(container.querySelector(".timeline-mark title")?.textContent).toMatch(/^incident rank_lost, rank 1, step 120, /);
  await expectAccessible(container);
});

test("a timeline that began earlier says so", () => {
  render(<StateTimeline line={timeline({ complete: false })} now={new Date(1_100_000)} />);
  expect(screen.getByRole("img", { name: /^The newest part/ })).toBeTruthy();
});

test("a timeline that could not be read says so, and is read again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let back = false;
  given({ "GET /v1/jobs/job-1/timeline": () => (back ? Response.json(timeline()) : lost()) });
  open(<JobTimeline id="job-1" now={new Date(1_100_000)} />);
  expect((await screen.findByRole("alert")).textContent).toContain("Retrying.");
  back = true;
  for (let seconds = 0; seconds < 6; seconds += 1) await vi.advanceTimersByTimeAsync(1000);
  expect(await screen.findByRole("img", { name: /^1 min 40 s/ })).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});
