import { render } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { logAddress, useLogAddress } from "./use-log-address";

function Logs({ show }: { show: (rank: number) => void }) {
  useLogAddress(show);
  return <h2 id="logs-title">Logs</h2>;
}

test("the address opens a rank's log, at first and each time again", async () => {
  const show = vi.fn();
  const scrolled = vi.fn();
  Element.prototype.scrollIntoView = scrolled;
  history.replaceState(null, "", `/jobs/job-1?x=1${logAddress(3)}`);
  render(<Logs show={show} />);
  expect(show.mock.calls).toEqual([[3]]);
  expect(location.pathname + location.search + location.hash).toBe("/jobs/job-1?x=1");
  for (const count of [2, 3]) {
    location.hash = logAddress(12);
    await expect.poll(() => show.mock.calls.length).toBe(count);
    expect(show.mock.lastCall).toEqual([12]);
  }
  location.hash = "#elsewhere";
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(show).toHaveBeenCalledTimes(3);
  expect(scrolled).toHaveBeenCalledTimes(3);
});
