import { act, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, test, vi } from "vitest";
import type { Schema } from "../api/http";
import { expectAccessible } from "../testing/accessible";
import { given, open } from "../testing/control-plane";
import { cordonWire, nodeWire } from "../testing/nodes";
import { ClusterPage } from "./cluster";
import { TopBar } from "./top-bar";

afterEach(() => { vi.useRealTimers(); });

const answers = (nodes: Schema<"Node">[], cordons: Schema<"Cordon">[] = []) =>
  given({ "GET /v1/nodes": () => Response.json({ items: nodes }), "GET /v1/cordons": () => Response.json({ items: cordons }) });

test("a machine names its devices and the jobs that hold them", async () => {
  const held = [{ job: "job-1", name: "llama", state: "running", ranks: 4, elastic: { min: 1, max: 8 } }];
  answers([nodeWire({ held, held_more: 3 })]);
  const { container } = open(<ClusterPage />, "/cluster");
  const card = within(await screen.findByRole("article", { name: "gpu-1" }));
  expect(card.getByText("in use")).toBeTruthy();
  expect(card.getByText("4 of 32 in use")).toBeTruthy();
  expect(card.getByText("1 of 2 in use")).toBeTruthy();
  expect(card.getByRole("link", { name: "llama" }).getAttribute("href")).toBe("/jobs/job-1");
  expect(card.getByText("4 ranks · elastic, 1 to 8 ranks")).toBeTruthy();
  expect(card.getByText("and 3 more")).toBeTruthy();
  expect(container.textContent).not.toMatch(/CPUs/);
  expect(screen.getByText("1 machine · 1 of 2 GPUs in use · 4 of 32 CPU ranks in use")).toBeTruthy();
  await expectAccessible(container);
});

test("a machine names its cluster where it has a name of its own", async () => {
  answers([nodeWire(), nodeWire({ id: "fedcba9876543210", host: "gpu-2", cluster: "east" })]);
  open(<ClusterPage />, "/cluster");
  const named = within(await screen.findByRole("article", { name: "gpu-2" }));
  expect(named.getByText(/· cluster east/)).toBeTruthy();
  expect(within(screen.getByRole("article", { name: "gpu-1" })).queryByText(/· cluster /)).toBeNull();
});

test("a cordon says who, why and until when; its devices are not free for new jobs", async () => {
  answers([nodeWire({ cordon: cordonWire, in_use: false })], [cordonWire, { ...cordonWire, since: "2026-11-20T11:00:00Z", ended_at: "2026-11-20T12:00:00Z", ended_by: "eve" }]);
  const { container } = open(<ClusterPage />, "/cluster");
  const card = within(await screen.findByRole("article", { name: "gpu-1" }));
  expect(card.getByText("cordoned")).toBeTruthy();
  expect(card.getByText(/Cordoned by local until lifted: fan replaced at noon/)).toBeTruthy();
  expect(screen.getByText(/1 of 2 GPUs in use .* · 1 cordoned$/)).toBeTruthy();
  expect(await screen.findByText("lifted by eve")).toBeTruthy();
  await expectAccessible(container);
});

test("a lost machine holds nothing", async () => {
  answers([nodeWire({ alive: false, in_use: false })]);
  open(<ClusterPage />, "/cluster");
  const card = within(await screen.findByRole("article", { name: "gpu-1" }));
  expect(card.getByText("lost")).toBeTruthy();
  expect(card.queryByText("No jobs.")).toBeNull();
  expect(card.queryByRole("button")).toBeNull();
});

test("a machine on which a gang runs shows what its processes use", async () => {
  const use: Schema<"NodeUse"> = {
    at: "2026-11-21T12:00:00Z", cpu: 62.4, memory_used: 3 * 2 ** 30, memory_available: 2 ** 30, memory_limit: null, memory_limit_used: null,
    disk_read: 0, disk_write: 0, disk_full: 41, network_receive: 2048, network_send: 1024,
  };
  answers([nodeWire({ use }), nodeWire({ id: "fedcba9876543210", host: "gpu-2" })]);
  const { container } = open(<ClusterPage />, "/cluster");
  const card = within(await screen.findByRole("article", { name: "gpu-1" }));
  expect(card.getByRole("meter", { name: "CPU used" }).getAttribute("aria-valuenow")).toBe("62");
  expect(card.getByRole("meter", { name: "Memory used" }).getAttribute("aria-valuenow")).toBe("75");
  expect(card.getByText("Network: 2.0 KiB/s in, 1.0 KiB/s out")).toBeTruthy();
  expect(within(screen.getByRole("article", { name: "gpu-2" })).queryByRole("meter", { name: "CPU used" })).toBeNull();
  await expectAccessible(container);
});

test("before the dispatcher lists machines the page says that there are none", async () => {
  answers([]);
  open(<ClusterPage />, "/cluster");
  expect(await screen.findByText("No machines yet")).toBeTruthy();
});

test("the tabs keep the range and the machine of the address, and one that is not there says so", () => {
  given({ "GET /v1/nodes": () => Response.json({ items: [] }) });
  open(<ClusterPage tab="mood" />, "/cluster/mood?range=day&node=n1");
  const tabs = within(screen.getByRole("navigation", { name: "Tabs of the cluster" }));
  expect(tabs.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual(["", "/use", "/queue", "/history"].map((tab) => `/cluster${tab}?range=day&node=n1`));
  expect(screen.getByText("The cluster has no tab of this name.")).toBeTruthy();
});

test.each([[100, 6], [101, 1]])("%i machines are read again %i times in 30 s, by the page and the bar above it together", async (count, times) => {
  vi.useFakeTimers();
  const requests = answers(Array.from({ length: count }, (_, at) => nodeWire({ id: `n${at}`, host: `gpu-${at}` })));
  open(<><TopBar /><ClusterPage tab="mood" /></>, "/cluster/mood");
  const read = () => requests.filter(({ url }) => url.pathname === "/v1/nodes").length;
  await act(() => vi.advanceTimersByTimeAsync(100));
  expect(read()).toBe(1);
  for (let second = 0; second < 30; second += 1) await act(() => vi.advanceTimersByTimeAsync(1000));
  expect(read() - 1).toBe(times);
});

test("of many machines some are shown, and others found by text", async () => {
  answers(Array.from({ length: 200 }, (_, at) => nodeWire({ id: `n${at}`, host: `gpu-${at}` })));
  open(<ClusterPage />, "/cluster");
  expect(await screen.findAllByRole("article")).toHaveLength(60);
  await userEvent.click(screen.getByRole("button", { name: "More machines" }));
  expect(screen.getAllByRole("article")).toHaveLength(120);
  await userEvent.type(screen.getByRole("searchbox"), "GPU-199");
  expect(screen.getAllByRole("article").map((card) => card.getAttribute("aria-label"))).toEqual(["gpu-199"]);
  expect(screen.getByRole("link", { name: "History of gpu-199" }).getAttribute("href")).toBe("/cluster/history?node=n199");
});
