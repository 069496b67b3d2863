import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { Schema } from "../../api/http";
import { getSystem } from "../../api/system";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { job } from "../../testing/jobs";
import { showInView } from "../../testing/in-view";
import { JobSystem } from "./job-system";

vi.mock("../../components/chart", () => import("../../testing/chart"));

const curve = (changes: Partial<Schema<"SystemCurve">>): Schema<"SystemCurve"> => ({ node: null, rank: null, mean: [1, 2], low: null, high: null, last: 2, ...changes });

const ANSWER: Schema<"SystemCurves"> = {
  name: "rank/memory",
  unit: "bytes",
  width: 5,
  starts: [1000, 1005],
  curves: [curve({ rank: 0, last: 2 ** 30 }), curve({ rank: 1, last: 2 ** 20 })],
  next: null,
  metrics: [{ name: "node/cpu", unit: "percent of all CPUs" }, { name: "rank/memory", unit: "bytes" }],
};
const OF_NODE: Schema<"SystemCurves"> = { ...ANSWER, name: "node/cpu", unit: "percent of all CPUs", curves: [curve({ node: "0123456789abcdef", last: 25 })] };

function answers(of: Record<string, Schema<"SystemCurves">>) {
  return given({ "GET /v1/jobs/job-1/system": ({ url }) => Response.json(of[url.searchParams.get("name") ?? ""]) });
}

beforeEach(() => { localStorage.clear(); });

test("charts of nodes and ranks say where each line ends", async () => {
  showInView();
  answers({ "node/cpu": OF_NODE, "rank/memory": ANSWER });
  const { container } = open(<JobSystem job={job()} />);
  expect(await screen.findByLabelText("CPUs of the node (%). 0123456789ab ends at 25.")).toBeTruthy();
  expect(await screen.findByLabelText("Resident memory of the rank’s processes. rank 0 ends at 1.0 GiB, rank 1 ends at 1.0 MiB.")).toBeTruthy();
  expect(screen.getAllByRole("heading").map((heading) => heading.textContent)).toEqual(["Nodes", "Ranks"]);
  expect(screen.queryByRole("button", { name: "Next" })).toBeNull();
  await expectAccessible(container);
});

test("charts that are not in view are not read", async () => {
  showInView((name) => name === "node/cpu");
  const requests = answers({ "node/cpu": OF_NODE });
  open(<JobSystem job={job({ state: "succeeded" })} />);
  await screen.findByRole("figure");
  expect(new Set(requests.map(({ url }) => url.searchParams.get("name")))).toEqual(new Set(["node/cpu"]));
});

test("ranks beyond the first page are read on request", async () => {
  showInView();
  const requests = answers({ "node/cpu": OF_NODE, "rank/memory": { ...ANSWER, next: "23" } });
  open(<JobSystem job={job()} />);
  await userEvent.click(await screen.findByRole("button", { name: "Next" }));
  await expect.poll(() => requests.some(({ url }) => url.searchParams.get("after") === "23")).toBe(true);
  await userEvent.click(screen.getByRole("button", { name: "First" }));
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "First" }).disabled).toBe(true);
});

test("a job without samples says so", async () => {
  showInView();
  answers({ "node/cpu": { ...OF_NODE, starts: [], curves: [], metrics: [] } });
  const first = open(<JobSystem job={job()} />);
  expect(await screen.findByText("Samples appear when the job’s ranks run.")).toBeTruthy();
  first.unmount();
  open(<JobSystem job={job({ state: "failed" })} />);
  expect(await screen.findByText("No samples of this job are stored.")).toBeTruthy();
});

test("a line is interrupted where the job had no ranks", async () => {
  answers({ "node/cpu": { ...OF_NODE, starts: [1000, 1005, 5000], curves: [curve({ node: "n1", mean: [1, 2, 3], last: 3 })] } });
  const { lines } = await getSystem("job-1", "node/cpu", null);
  expect(lines[0]?.points.map(({ y }) => y)).toEqual([1, 2, null, 3]);
});

test("rare samples are one line, also of nodes whose samples are at other times", async () => {
  const mean = (...of: (number | null)[]) => curve({ node: "n", mean: of, last: 1 });
  answers({ "node/cpu": { ...OF_NODE, starts: [1000, 1005, 1030, 1035, 1060, 1065], curves: [mean(1, null, 2, null, 3, null), mean(null, 4, null, 5, null, 6)] } });
  const { lines } = await getSystem("job-1", "node/cpu", null);
  expect(lines.map(({ points }) => points.map(({ x, y }) => [x, y]))).toEqual([[[1002.5, 1], [1032.5, 2], [1062.5, 3]], [[1007.5, 4], [1037.5, 5], [1067.5, 6]]]);
});
