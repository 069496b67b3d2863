import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { getClusterUse } from "../../api/cluster";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { showInView } from "../../testing/in-view";
import { nodeWire } from "../../testing/nodes";
import { ClusterUse } from "./cluster-use";

vi.mock("../../components/chart", () => import("../../testing/chart"));

const USE: Schema<"ClusterUse"> = {
  width: 60,
  starts: [600, 660],
  nodes: [2, 2],
  cordoned: [0, 1],
  devices: [{ kind: "cuda", all: [16, 16], used: [4, 8], free: [12, 4], cordoned: [0, 4] }],
  holders: [
    { by: "user", kind: "cuda", name: "ada", used: [4, 6] },
    { by: "user", kind: "cuda", name: "", used: [0, 2] },
    { by: "team", kind: "cuda", name: "search", used: [0, 3] },
  ],
};
const curve = (name: string, unit: string, gpu: string | null, last: number): Schema<"NodeCurve"> => ({ name, unit, gpu, mean: [1, last], low: null, high: null, last });
const NODE: Schema<"NodeCurves"> = {
  node: "n1", host: "gpu-1", width: 60, starts: [600, 660],
  curves: [curve("cpu", "percent of all CPUs", null, 40), curve("memory_used", "bytes", null, 2 ** 30), curve("gpu_utilization", "percent", "0", 90), curve("gpu_utilization", "percent", "1", 80)],
};

const many = (count: number) => Array.from({ length: count }, (_, at) => nodeWire({ id: `n${at}`, host: `gpu-${at}`, devices: [{ kind: "cuda", all: 8, free: at === 700 ? 0 : 8 }] }));

function plane(nodes: Schema<"Node">[], use = USE) {
  return given({
    "GET /v1/cluster/use": () => Response.json(use),
    "GET /v1/nodes": () => Response.json({ items: nodes }),
    ...Object.fromEntries(nodes.map(({ id }) => [`GET /v1/nodes/${id}/use`, () => Response.json(NODE)])),
  });
}

test("devices, users and teams are charts of the range in the address", async () => {
  showInView();
  const requests = plane(many(1));
  const { container } = open(<ClusterUse />, "/cluster/use?range=day");
  expect(await screen.findByLabelText("GPUs. In use ends at 8, Free ends at 4, Cordoned ends at 4.")).toBeTruthy();
  expect(screen.getByLabelText("GPUs by user. ada ends at 6, Others ends at 2.")).toBeTruthy();
  expect(screen.getByLabelText("GPUs by team. search ends at 3.")).toBeTruthy();
  await expectAccessible(container);
  await userEvent.selectOptions(screen.getByLabelText("Range"), "Last week");
  await expect.poll(() => new Set(requests.map(({ url }) => url.searchParams.get("range")))).toContain("week");
  expect(location.search).toBe("?range=week");
});

test("of 1,000 machines the busiest are listed and only those in view are read; others are found by text", async () => {
  showInView((name) => name === "n700");
  const requests = plane(many(1000));
  open(<ClusterUse />, "/cluster/use");
  const machines = within(await screen.findByRole("region", { name: "Machines over time" }));
  expect(await machines.findByLabelText("gpu-700 (% in use). CPUs ends at 40, GPU 0 ends at 90, GPU 1 ends at 80.")).toBeTruthy();
  expect(machines.getAllByRole("listitem")).toHaveLength(12);
  await userEvent.type(machines.getByRole("searchbox"), "GPU-99");
  expect(machines.getAllByRole("listitem").map((one) => one.textContent)).toHaveLength(11);
  const read = requests.map(({ url }) => url.pathname).filter((path) => path.endsWith("/use") && path !== "/v1/cluster/use");
  expect(new Set(read)).toEqual(new Set(["/v1/nodes/n700/use"]));
});

test("one machine has all its metrics, and an address", async () => {
  showInView();
  plane(many(2));
  const { container } = open(<ClusterUse />, "/cluster/use?node=n1");
  expect(await screen.findByLabelText("Memory in use. Machine ends at 1.0 GiB.")).toBeTruthy();
  expect(screen.getByLabelText("GPU utilization (%). GPU 0 ends at 90, GPU 1 ends at 80.")).toBeTruthy();
  expect(screen.getByRole("region", { name: "gpu-1 over time" })).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "All machines" }));
  expect(location.search).toBe("");
});

test("before the first sample the page says what will come", async () => {
  showInView();
  plane([], { ...USE, starts: [], nodes: [], cordoned: [], devices: [], holders: [] });
  open(<ClusterUse />, "/cluster/use");
  expect(await screen.findByText("No samples in this range")).toBeTruthy();
});

test("a line is interrupted where the dispatcher did not run", async () => {
  plane([], { ...USE, starts: [600, 6000], devices: [], holders: [{ by: "user", kind: "cpu", name: "ada", used: [1, 2] }] });
  const [chart] = await getClusterUse("hour");
  expect(chart?.lines[0]?.points.map(({ y }) => y)).toEqual([1, null, 2]);
});
