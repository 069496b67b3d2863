import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { JobWire } from "../api/jobs";
import { makeClient } from "../api/query-client";
import { expectAccessible } from "../testing/accessible";
import { jobWire } from "../testing/jobs";
import { JobsPage } from "./jobs";

const asked: URL[] = [];
const loggedAsked: URL[] = [];
const NAMES = { items: [{ name: "val/acc", jobs: 2, last_step: 9 }], more: false };
const VALUES = { items: [["job-1", 0.75], ["job-2", 0.5]].map(([job, last]) => ({ job, values: { "val/acc": { last, lowest: last, highest: last, last_step: 9 } } })) };

const loggedOf = (url: URL) => Response.json(url.pathname === "/v1/logged-names" ? NAMES : VALUES);

/** The control plane answers with `answer` when it is asked for jobs. */
function given(answer: (url: URL) => Response, logged: (url: URL) => Response = loggedOf): void {
  vi.stubGlobal("fetch", (path: string) => {
    const url = new URL(path, "http://control.plane");
    if (url.pathname === "/v1/sparklines") return Promise.resolve(sparklines(url));
    if (url.pathname.startsWith("/v1/logged-")) {
      loggedAsked.push(url);
      return Promise.resolve(logged(url));
    }
    asked.push(url);
    return Promise.resolve(answer(url));
  });
}

const sparklines = (url: URL) =>
  Response.json({ items: url.searchParams.getAll("job").map((job) => ({ job, width: 1, low: [3, 2.5], high: [4, 2.5] })) });

/** Written faster than any machine is slow: no timer runs between two letters. */
function typed(box: HTMLElement, text: string): void {
  for (let end = 1; end <= text.length; end += 1) fireEvent.change(box, { target: { value: text.slice(0, end) } });
}

const page = (items: JobWire[], next: string | null = null) => Response.json({ items, next });

function open(address = "/"): void {
  history.replaceState(null, "", address);
  render(<QueryClientProvider client={makeClient()}><JobsPage /></QueryClientProvider>);
}

beforeEach(() => { asked.length = loggedAsked.length = 0; });

test("no jobs: how to submit one", async () => {
  given(() => page([]));
  open();
  expect(await screen.findByText("shardyard submit examples/quickstart.yaml")).toBeTruthy();
});

test("the filter is read from the address and written to it", async () => {
  given(() => page([jobWire()]));
  open("/?state=running");
  await screen.findByRole("link", { name: "llama-nano" });
  expect(asked[0]?.searchParams.get("state")).toBe("running");
  typed(screen.getByRole("searchbox"), "llama");
  expect(location.search).toBe("?state=running&text=llama");
  await expect.poll(() => asked.at(-1)?.searchParams.get("text")).toBe("llama");
  expect(asked.filter((url) => url.searchParams.get("text") === "lla")).toEqual([]);
});

test("a filter that nothing matches can be taken away", async () => {
  given((url) => page(url.searchParams.has("text") ? [] : [jobWire()]));
  open("/?text=nothing");
  await userEvent.click(await screen.findByRole("button", { name: "Show all jobs" }));
  expect(await screen.findByRole("link", { name: "llama-nano" })).toBeTruthy();
  expect(location.search).toBe("");
});

test("deleted jobs are listed alone, and restored", async () => {
  const gone = jobWire({ state: "failed", deleted_at: "2026-11-20T12:00:00Z", deleted_by: "retention" });
  given((url) => {
    if (url.pathname.endsWith("/undelete")) return Response.json(jobWire({ state: "failed" }));
    return page(url.searchParams.get("deleted") === "true" ? [gone] : []);
  });
  open();
  await userEvent.click(await screen.findByRole("checkbox", { name: "Deleted" }));
  expect(location.search).toBe("?deleted=true");
  const row = (await screen.findByRole("link", { name: "llama-nano" })).closest("tr");
  expect(row?.textContent).toMatch(/deleted .* by retention/);
  await userEvent.click(screen.getByRole("checkbox", { name: "Select llama-nano" }));
  const selected = within(screen.getByRole("group", { name: "Selected jobs" }));
  expect(selected.getAllByRole("button").map((button) => button.textContent)).toEqual(["Restore 1 job", "Clear selection"]);
  await userEvent.click(selected.getByRole("button", { name: "Restore 1 job" }));
  await expectAccessible(screen.getByRole("dialog", { name: "Restore 1 job?" }));
  await userEvent.click(screen.getAllByRole("button", { name: "Restore 1 job" }).at(-1) ?? document.body);
  await expect.poll(() => asked.filter((url) => url.pathname === "/v1/jobs/job-1/undelete").length).toBe(1);
  await userEvent.click(screen.getByRole("checkbox", { name: "Deleted" }));
  expect(location.search).toBe("");
});

test("more jobs come by cursor", async () => {
  given((url) => (url.searchParams.get("cursor") === "c1" ? page([jobWire({ id: "job-2", name: "older" })]) : page([jobWire()], "c1")));
  open();
  await userEvent.click(await screen.findByRole("button", { name: "Load more" }));
  expect(await screen.findByRole("link", { name: "older" })).toBeTruthy();
  expect(screen.getByRole("link", { name: "llama-nano" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Load more" })).toBeNull();
});

test("a refusal is shown as the control plane said it", async () => {
  given(() => Response.json({ title: "Invalid filter", code: "invalid_filter", detail: "No such state." }, { status: 422 }));
  open("/?state=napping");
  expect((await screen.findByRole("alert")).textContent).toContain("No such state.");
});

test("label and order are in the address too, and half a label is not asked for", async () => {
  given(() => page([jobWire()]));
  open("/?label=team%3Dsearch&sort=name");
  await screen.findByRole("link", { name: "llama-nano" });
  expect(asked[0]?.searchParams.getAll("label")).toEqual(["team=search"]);
  expect(asked[0]?.searchParams.get("sort")).toBe("name");
  await userEvent.selectOptions(screen.getByLabelText("Order"), "oldest");
  await userEvent.clear(screen.getByLabelText("Label"));
  await userEvent.type(screen.getByLabelText("Label"), "team");
  expect(location.search).toBe("?label=team&sort=oldest");
  await expect.poll(() => asked.at(-1)?.searchParams.get("sort")).toBe("oldest");
  expect(asked.every((url) => url.searchParams.get("label") !== "team")).toBe(true);
});

test("rows show their curves, of which all come in one answer", async () => {
  given(() => page([jobWire(), jobWire({ id: "job-2", name: "other" }), jobWire({ id: "job-3", name: "new", progress: null })]));
  const counted = vi.fn(globalThis.fetch);
  vi.stubGlobal("fetch", counted);
  open();
  expect(await screen.findByRole("img", { name: "Loss of llama-nano: from 4.0000 to 2.5000" })).toBeTruthy();
  expect(screen.getAllByRole("img")).toHaveLength(2);
  const curves = counted.mock.calls.map(([path]) => path as string).filter((path) => path.startsWith("/v1/sparklines"));
  expect([...new Set(curves)]).toEqual(["/v1/sparklines?job=job-1&job=job-2"]); // asked for again after 5 s
});

test("jobs are selected to be compared, or cancelled together", async () => {
  given(() => page([jobWire(), jobWire({ id: "job-2", name: "other", state: "succeeded" })]));
  open();
  await userEvent.click(await screen.findByRole("checkbox", { name: "Select all jobs" }));
  const selected = screen.getByRole("group", { name: "Selected jobs" });
  expect(within(selected).getByText("2 selected")).toBeTruthy();
  expect(within(selected).getByRole("link", { name: "Compare" }).getAttribute("href")).toBe("/compare?job=job-1&job=job-2");
  expect(within(selected).getByRole("button", { name: "Cancel 1 job" })).toBeTruthy();
  await userEvent.click(within(selected).getByRole("button", { name: "Clear selection" }));
  expect(screen.queryByRole("group", { name: "Selected jobs" })).toBeNull();
});

test("Undo restores all jobs of a deletion, also those that refused at first", async () => {
  const there = new Map(["job-1", "job-2"].map((id) => [id, jobWire({ id, name: `run-${id}`, state: "failed" })]));
  const restored: string[] = [];
  let pinned = true;
  given((url) => {
    const [id = "", verb] = url.pathname.split("/").slice(3);
    if (id === "") return page([...there.values()]);
    if (verb === "undelete") restored.push(id);
    else if (id === "job-2" && pinned) return Response.json({ title: "The job is pinned", code: "job_pinned", detail: "It is pinned." }, { status: 409 });
    else there.delete(id);
    return Response.json(jobWire({ id, state: "failed" }));
  });
  open();
  await userEvent.click(await screen.findByRole("checkbox", { name: "Select all jobs" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete 2 jobs" }));
  await userEvent.click(screen.getAllByRole("button", { name: "Delete 2 jobs" }).at(-1) ?? document.body);
  expect(await screen.findByText("run-job-1 was deleted.")).toBeTruthy();
  pinned = false;
  await userEvent.click((await screen.findAllByRole("button", { name: "Delete 1 job" })).at(-1) ?? document.body);
  expect(await screen.findByText("2 jobs were deleted.")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Undo" }));
  await expect.poll(() => restored.toSorted()).toEqual(["job-1", "job-2"]);
});

test("columns are chosen, kept in the address, and order the jobs", async () => {
  localStorage.clear();
  const withRate = (id: string, name: string, lr: number) => jobWire({ id, name, spec: { name, train: { optimizer: { lr } } } });
  given(() => page([withRate("job-1", "one", 0.1), withRate("job-2", "two", 0.02), withRate("job-3", "three", 3)]));
  open("/?state=running");
  await userEvent.click(await screen.findByRole("button", { name: "Columns…" }));
  const dialog = within(screen.getByRole("dialog", { name: "Columns" }));
  await userEvent.type(dialog.getByRole("searchbox"), "lr");
  await userEvent.click(dialog.getByRole("checkbox", { name: "spec.train.optimizer.lr" }));
  await expectAccessible(document.body);
  await userEvent.click(dialog.getByRole("button", { name: "Close" }));
  expect(new URLSearchParams(location.search).get("columns")).toBe("spec.train.optimizer.lr");
  const head = screen.getByRole("columnheader", { name: "optimizer.lr" });
  expect(within(screen.getByRole("row", { name: /two/ })).getByText("0.02")).toBeTruthy();
  const names = () => screen.getAllByRole("rowheader").map((cell) => cell.textContent);
  await userEvent.click(within(head).getByRole("button"));
  expect([head.getAttribute("aria-sort"), names()]).toEqual(["ascending", ["two", "one", "three"]]);
  await userEvent.click(within(head).getByRole("button"));
  expect([head.getAttribute("aria-sort"), names()]).toEqual(["descending", ["three", "one", "two"]]);
  typed(screen.getByRole("searchbox", { name: "Text" }), "x");
  expect(Object.fromEntries(new URLSearchParams(location.search))).toEqual({ state: "running", text: "x", columns: "spec.train.optimizer.lr", by: "-spec.train.optimizer.lr" });
  await userEvent.click(within(head).getByRole("button"));
  expect([head.getAttribute("aria-sort"), names()]).toEqual(["none", ["one", "two", "three"]]);
});

test("times and logged metrics are ordered by the control plane, over all pages", async () => {
  localStorage.clear();
  given((url) => (url.searchParams.get("cursor") === "c1" ? page([jobWire({ id: "job-2", name: "older" }), jobWire()]) : page([jobWire({ device_s: 90 })], "c1")));
  open("/?columns=device_time,highest.acc,label.team&by=label.team");
  await screen.findByRole("link", { name: "llama-nano" });
  expect(screen.getByText("1 min 30 s")).toBeTruthy();
  expect(screen.getByText(/jobs that are loaded are ordered by team/)).toBeTruthy();
  const press = async (name: string) => {
    const head = screen.getByRole("columnheader", { name: new RegExp(name) });
    await userEvent.click(within(head).getByRole("button"));
    return head;
  };
  const head = await press("highest acc");
  expect([head.getAttribute("aria-sort"), new URLSearchParams(location.search).get("sort")]).toEqual(["ascending", "highest.acc"]);
  await press("highest acc");
  expect([head.getAttribute("aria-sort"), new URLSearchParams(location.search).get("sort")]).toEqual(["descending", "-highest.acc"]);
  await expect.poll(() => asked.at(-1)?.searchParams.get("sort")).toBe("-highest.acc");
  expect(screen.queryByText(/jobs that are loaded are ordered/)).toBeNull();
  expect(screen.getByLabelText<HTMLSelectElement>("Order").selectedOptions[0]?.textContent).toBe("By highest acc, largest first");
  await userEvent.click(await screen.findByRole("button", { name: "Load more" }));
  await screen.findByRole("link", { name: "older" });
  expect(screen.getAllByRole("rowheader")).toHaveLength(2); // one of them on both pages
  await expectAccessible(document.body);
  await press("highest acc");
  expect(Object.fromEntries(new URLSearchParams(location.search))).toEqual({ columns: "device_time,highest.acc,label.team" });
  await press("Device time");
  await press("team");
  await userEvent.selectOptions(screen.getByLabelText("Order"), "-duration");
  expect(Object.fromEntries(new URLSearchParams(location.search))).toEqual({ columns: "device_time,highest.acc,label.team", sort: "-duration" });
});

test("a browser keeps the columns that it had last", async () => {
  localStorage.setItem("shardyard.job-columns", "label.team");
  given(() => page([jobWire({ labels: { team: "search" } })]));
  open("/");
  expect(await screen.findByRole("columnheader", { name: "team" })).toBeTruthy();
  expect(screen.getByText("search")).toBeTruthy();
  localStorage.clear();
});

test("the more rows are loaded, the more rarely all are asked for again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const count = 10;
  given((url) => {
    const at = Number(url.searchParams.get("cursor") ?? 0);
    return page([jobWire({ id: `job-${at}`, name: `name-${at}` })], at + 1 < count ? String(at + 1) : null);
  });
  open();
  for (let at = 1; at < count; at += 1) {
    fireEvent.click(await screen.findByRole("button", { name: "Load more" }));
    await screen.findByRole("link", { name: `name-${at}` });
  }
  asked.length = 0;
  await vi.advanceTimersByTimeAsync(20_500);
  vi.useRealTimers();
  expect(asked.length).toBeGreaterThan(0);
  expect(asked.length).toBeLessThanOrEqual(2 * count);
});

test("jobs are grouped by what the address says, and a group can be closed", async () => {
  given(() => page([jobWire({ name: "one", labels: { team: "b" } }), jobWire({ id: "job-2", name: "two", labels: { team: "a" }, actor: "bob" }), jobWire({ id: "job-3", name: "three", labels: {} })], "c1"));
  open("/?sort=name&group=label.team");
  await screen.findByRole("link", { name: "one" });
  const shown = () => screen.getAllByRole("row").slice(1).map((row) => row.querySelector("th")?.textContent);
  expect(shown()).toEqual(["a 1", "two", "b 1", "one", "without this label 1", "three"]);
  expect(screen.getByText("Groups are of the 3 jobs that are loaded.")).toBeTruthy();
  await expectAccessible(document.body);
  await userEvent.click(screen.getByRole("button", { name: "b 1" }));
  expect(screen.getByRole("button", { name: "b 1" }).getAttribute("aria-expanded")).toBe("false");
  expect(shown()).toEqual(["a 1", "two", "b 1", "without this label 1", "three"]);
  await userEvent.selectOptions(screen.getByLabelText("Groups"), "user");
  expect(location.search).toBe("?sort=name&group=user");
  expect(shown()).toEqual(["ada 2", "one", "three", "bob 1", "two"]);
  await userEvent.selectOptions(screen.getByLabelText("Groups"), "");
  expect([location.search, shown()]).toEqual(["?sort=name", ["one", "two", "three"]]);
});

test("logged metrics are columns, of which all jobs come in one answer, and order all jobs", async () => {
  localStorage.clear();
  given(() => page([jobWire({ name: "one" }), jobWire({ id: "job-2", name: "two" }), jobWire({ id: "job-3", name: "three", started_at: null })], "c1"));
  open("/");
  await userEvent.click(await screen.findByRole("button", { name: "Columns…" }));
  const dialog = within(screen.getByRole("dialog", { name: "Columns" }));
  await userEvent.click(await dialog.findByRole("checkbox", { name: "metric.val/acc" }));
  await userEvent.click(dialog.getByRole("button", { name: "Close" }));
  const row = screen.getByRole("row", { name: /one/ });
  expect(await within(row).findByText("0.75")).toBeTruthy();
  expect([...new Set(loggedAsked.map(({ pathname, search }) => pathname + search))]).toEqual([
    "/v1/logged-names?job=job-1&job=job-2&limit=1000",
    "/v1/logged-values?job=job-1&job=job-2&name=val%2Facc",
  ]);
  await userEvent.click(within(screen.getByRole("columnheader", { name: "val/acc" })).getByRole("button"));
  await expect.poll(() => asked.at(-1)?.searchParams.get("sort")).toBe("metric.val/acc");
  expect(screen.queryByText(/jobs that are loaded are ordered/)).toBeNull();
  expect(new URLSearchParams(location.search).get("columns")).toBe("metric.val/acc");
  await expectAccessible(document.body);
  localStorage.clear();
});

test("values of metrics that cannot be read are reported above the jobs", async () => {
  const refusal = Response.json({ code: "bad_input", title: "Unusable input", detail: "too many names" }, { status: 422 });
  given(() => page([jobWire({ name: "one" })]), () => refusal.clone());
  open("/?columns=metric.val/acc");
  expect((await screen.findByRole("alert")).textContent).toContain("too many names");
  expect(screen.getByRole("row", { name: /one/ })).toBeTruthy();
});
