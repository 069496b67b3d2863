import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test, vi } from "vitest";
import { ALL } from "../../model/log-search";
import { expectAccessible } from "../../testing/accessible";
import { given, lost, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { JobLogs } from "./job-logs";
import { downloadLog } from "./log-download";

afterEach(() => { vi.useRealTimers(); });

const line = (n: number, text: string) => ({ position: n, rank: n % 2, attempt: 1, line: n, stream: "stdout", text, ts: 1_795_000_000 + n });

function plane() {
  return given({
    "GET /v1/jobs/job-1/logs": ({ url }) =>
      Response.json({ lines: url.searchParams.has("around") ? [line(39, "before"), line(40, "needle one"), line(41, "after")] : [line(90, "newest")], next: null }),
    "GET /v1/jobs/job-1/logs/search": ({ url }) => {
      const after = Number(url.searchParams.get("after"));
      if (after === 0) return Response.json({ lines: [], scanned_to: 20, end: 100, done: false });
      if (after === 20) return Response.json({ lines: [line(40, "needle one")], scanned_to: 60, end: 100, done: false });
      return Response.json({ lines: [line(70, "needle two")], scanned_to: 100, end: 100, done: true });
    },
  });
}

test("a search looks on by itself, and a hit is seen among its neighbours", async () => {
  const requests = plane();
  const { container } = open(<JobLogs job={job({ state: "succeeded" })} />);
  await screen.findByText("newest");
  await userEvent.type(screen.getByLabelText("Text"), "needle");
  await screen.findByText("2 lines found.");
  const asked = requests.filter(({ url }) => url.pathname.endsWith("/search")).map(({ url }) => url.searchParams);
  expect(asked.map((params) => [params.get("text"), params.get("after")])).toEqual([["needle", "0"], ["needle", "20"], ["needle", "60"]]);
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "needle one" }));
  const about = screen.getByRole("region", { name: "Lines around the match" });
  await within(about).findByText("before");
  expect(about.querySelector("[data-marked]")?.textContent).toContain("needle one");
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Back to the results" }));
  expect(await screen.findByRole("button", { name: "needle two" })).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Follow the newest lines" }));
  await screen.findByText("newest");
});

test("a text is searched for as a regular expression", async () => {
  const requests = plane();
  const { container } = open(<JobLogs job={job({ state: "succeeded" })} />);
  await userEvent.type(screen.getByLabelText("Text"), "needle .");
  const toggle = screen.getByRole("button", { name: "Regular expression" });
  expect(toggle.getAttribute("aria-pressed")).toBe("false");
  await userEvent.click(toggle);
  await expect.poll(() => requests.at(-1)?.url.searchParams.get("regex")).toBe("true");
  expect(requests.at(-1)?.url.searchParams.get("text")).toBe("needle .");
  expect(toggle.getAttribute("aria-pressed")).toBe("true");
  await expectAccessible(container);
});

test("a pattern that is none is refused, and no search seems to go on", async () => {
  const refused = () => Response.json({ title: "Not a regular expression", code: "invalid_pattern", detail: "The pattern lacks a parenthesis." }, { status: 422 });
  given({ "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [], next: null }), "GET /v1/jobs/job-1/logs/search": refused });
  const { container } = open(<JobLogs job={job({ state: "succeeded" })} />);
  await userEvent.type(screen.getByLabelText("Text"), "(step");
  await screen.findByText("The pattern lacks a parenthesis.", { exact: false });
  expect(screen.queryByText("Searching…")).toBeNull();
  expect(screen.queryByRole("button", { name: "Try again" })).toBeNull();
  await expectAccessible(container);
});

const busy = () => Response.json({ title: "Too many searches at once", code: "too_many_searches" }, { status: 503 });

test("a search that the control plane had no room for can be tried again", async () => {
  const answers = [busy, busy, () => Response.json({ lines: [line(40, "needle")], scanned_to: 100, end: 100, done: true })];
  const requests = given({ "GET /v1/jobs/job-1/logs/search": () => (answers.shift() ?? busy)() });
  const { container } = open(<JobLogs job={job({ state: "succeeded" })} />, "/?text=needle");
  const again = await screen.findByRole("button", { name: "Try again" });
  expect(screen.getByRole("alert").textContent).toContain("Too many searches at once");
  expect(requests).toHaveLength(2);
  await expectAccessible(container);
  await userEvent.click(again);
  expect(await screen.findByText("1 line found.")).toBeTruthy();
  expect([screen.queryByRole("alert"), screen.queryByRole("button", { name: "Try again" })]).toEqual([null, null]);
});

test.each([0, 20])("a search goes on where the control plane was away at line %i, and keeps what it found", async (away) => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let back = false;
  const requests = given({
    "GET /v1/jobs/job-1/logs/search": ({ url }) => {
      const after = Number(url.searchParams.get("after"));
      if (after === away && !back) return lost();
      return Response.json({ lines: [line(after + 5, `needle ${after}`)], scanned_to: after + 20, end: 40, done: after === 20 });
    },
  });
  open(<JobLogs job={job({ state: "succeeded" })} />, "/?text=needle");
  const later = async () => { for (let seconds = 0; seconds < 12; seconds += 1) await vi.advanceTimersByTimeAsync(1000); };
  await later();
  expect(requests.filter(({ url }) => url.searchParams.get("after") === String(away)).length).toBeGreaterThan(3);
  back = true;
  await later();
  vi.useRealTimers();
  expect(await screen.findByText("2 lines found.")).toBeTruthy();
  expect(requests.filter(({ url }) => url.searchParams.get("after") === String(20 - away))).toHaveLength(1);
});

test("a download goes on after a page that the control plane had no room for", async () => {
  const asked: (string | null)[] = [];
  given({
    "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [line(90, "newest")], next: null }),
    "GET /v1/jobs/job-1/logs/search": ({ url }) => {
      asked.push(url.searchParams.get("after"));
      if (asked.length === 2) return busy();
      return Response.json({ lines: [line(asked.length, "needle")], scanned_to: 10, end: 20, done: asked.length > 1 });
    },
  });
  const { file, lines } = await downloadLog("job-1", { ...ALL, text: "needle" }, () => undefined, new AbortController().signal);
  expect([lines, asked]).toEqual([2, ["0", "10", "10"]]);
  expect(file.size).toBeGreaterThan(0);
});

test("level, rank and time are in the request", async () => {
  const requests = plane();
  open(<JobLogs job={job({ state: "succeeded" })} />);
  await userEvent.selectOptions(screen.getByLabelText("Rank"), "rank 3");
  await userEvent.selectOptions(screen.getByLabelText("Level"), "error");
  await expect.poll(() => requests.at(-1)?.url.searchParams.get("level")).toBe("error");
  expect(requests.at(-1)?.url.searchParams.get("rank")).toBe("3");
  expect(requests.some(({ url }) => url.pathname.endsWith("/logs") && url.searchParams.get("rank") === "3")).toBe(true);
});

test("the download has the lines that the filter finds, from all pages", async () => {
  const requests = plane();
  const files: Blob[] = [];
  vi.stubGlobal("URL", class extends URL {
    static override createObjectURL = (file: Blob) => `#${files.push(file)}`; // jsdom goes to no other page
    static override revokeObjectURL = () => undefined;
  });
  open(<JobLogs job={job({ state: "succeeded" })} />);
  await userEvent.selectOptions(screen.getByLabelText("Stream"), "stdout");
  await screen.findByText("2 lines found.");
  requests.length = 0;
  await userEvent.click(screen.getByRole("button", { name: "Download" }));
  expect(await screen.findByText("2 lines")).toBeTruthy();
  expect(requests.map(({ url }) => [url.searchParams.get("stream"), url.searchParams.get("after"), url.searchParams.get("limit")])).toEqual([["stdout", "0", "500"], ["stdout", "20", "500"], ["stdout", "60", "500"]]);
  const saved = files[0] ?? new Blob();
  expect(saved.type).toBe("text/plain");
  expect(saved.size).toBe(2 * "2026-11-18T14:27:20.000Z rank 0 stdout needle one\n".length);
});

test("a download that fails says so", async () => {
  given({ "GET /v1/jobs/job-1/logs": ({ url }) => (url.searchParams.has("tail") ? Response.json({ lines: [line(90, "newest")], next: null }) : Response.json({ title: "No", code: "job_not_found", detail: "It is gone." }, { status: 404 })) });
  open(<JobLogs job={job({ state: "failed" })} />);
  await screen.findByText("newest");
  await userEvent.click(screen.getByRole("button", { name: "Download" }));
  expect((await screen.findAllByText("It is gone.")).length).toBeGreaterThan(0);
  expect(screen.getByRole("button", { name: "Download" })).toBeTruthy();
});

test("a line that was found first stays, however far the search goes on", async () => {
  const parts = 30;
  given({
    "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [line(90, "newest")], next: null }),
    "GET /v1/jobs/job-1/logs/search": ({ url }) => {
      const to = Number(url.searchParams.get("after")) + 10;
      return Response.json({ lines: to === 10 ? [line(4, "needle early")] : [], scanned_to: to, end: parts * 10, done: to === parts * 10 });
    },
  });
  open(<JobLogs job={job({ state: "succeeded" })} />, "/?text=needle");
  expect(await screen.findByText("1 line found.")).toBeTruthy();
  expect(screen.getByRole("button", { name: "needle early" })).toBeTruthy();
});

test("a rank without lines is not a job without lines", async () => {
  given({ "GET /v1/jobs/job-1/logs": () => Response.json({ lines: [], next: null }) });
  open(<JobLogs job={job({ state: "succeeded" })} />, "/?rank=2");
  expect(await screen.findByText("Rank 2 wrote no log lines.")).toBeTruthy();
});

test("a rank that the job no longer has is the one of the address", async () => {
  const requests = plane();
  open(<JobLogs job={job({ state: "running", world_size: 4 })} />, "/jobs/job-1/logs?rank=7");
  await screen.findByText("newest");
  expect(new Set(requests.map(({ url }) => url.searchParams.get("rank")))).toEqual(new Set(["7"]));
  const choice = screen.getByRole<HTMLSelectElement>("combobox", { name: "Rank" });
  expect([...choice.selectedOptions].map((option) => option.textContent)).toEqual(["rank 7"]);
  await userEvent.selectOptions(choice, "rank 1");
  expect([...choice.options].map((option) => option.textContent)).toEqual(["All ranks", "rank 0", "rank 1", "rank 2", "rank 3"]);
});

test("the newest lines of a longer log say how many they are, and that a search finds others", async () => {
  const lines = Array.from({ length: 500 }, (_, at) => line(at + 1101, `line ${at}`));
  given({ "GET /v1/jobs/job-1/logs": ({ url }) => Response.json({ lines: url.searchParams.has("tail") ? lines : [], next: null, earlier: url.searchParams.get("rank") === null }) });
  open(<JobLogs job={job({ state: "succeeded" })} />);
  expect(await screen.findByText("The newest 500 lines. Search for older ones.")).toBeTruthy();
  await userEvent.selectOptions(screen.getByLabelText("Rank"), "rank 2");
  await screen.findByText("line 499");
  expect(screen.queryByText(/Search for older ones/)).toBeNull();
});

test("what retention has removed is shown, in place of a log without lines", async () => {
  given({ "GET /v1/jobs/job-1/logs": ({ url }) => Response.json(url.searchParams.get("rank") === "2" ? { lines: [], next: null, removed: 12_345 } : { lines: [line(2, "newest")], next: null, removed: 1 }) });
  const { container } = open(<JobLogs job={job({ state: "succeeded" })} />);
  expect(await screen.findByText("The first line of this job's log was removed by retention.")).toBeTruthy();
  await userEvent.selectOptions(screen.getByLabelText("Rank"), "rank 2");
  expect(await screen.findByText("The first 12,345 lines of this job's log were removed by retention.")).toBeTruthy();
  expect(screen.getByText("No lines are left.")).toBeTruthy();
  await expectAccessible(container);
});

test.each([["succeeded", 503], ["running", 500]])("logs of a %s job that cannot be read are not empty", async (state, status) => {
  const requests = given({ "GET /v1/jobs/job-1/logs": () => Response.json({ title: "The database does not answer", code: "database_unreachable" }, { status }) });
  open(<JobLogs job={job({ state })} />);
  expect((await screen.findByRole("alert", {}, { timeout: 5000 })).textContent).toContain("The database does not answer");
  expect(screen.queryByText(/no log lines|No lines yet/)).toBeNull();
  const asked = requests.length;
  await expect.poll(() => requests.length, { timeout: 5000 }).toBeGreaterThan(asked);
});

test("a text with an escape in it is the one of the address", async () => {
  const requests = plane();
  open(<JobLogs job={job({ state: "succeeded" })} />, `/jobs/job-1/logs?${new URLSearchParams({ text: "GET /a%20b" }).toString()}`);
  await expect.poll(() => requests.find(({ url }) => url.pathname.endsWith("/search"))?.url.searchParams.get("text")).toBe("GET /a%20b");
  expect(screen.getByLabelText<HTMLInputElement>("Text").value).toBe("GET /a%20b");
});
