import { screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { JobResources } from "./job-resources";

const MIB = 2 ** 20;
const NONE = { formula: null, low: null, high: null, planned: null };

const FOUND: Schema<"ResourceReport"> = {
  layout: "data 2 (ZeRO-2)",
  step: 2,
  memory: [
    { kind: "parameters", least: 8 * MIB, most: 8 * MIB, formula: "2Ψ", low: 8 * MIB, high: 8 * MIB, reason: null, planned: 8 * MIB },
    { kind: "gradients", least: 5 * MIB, most: 6 * MIB, formula: "2Ψ/2, and at most 3 buckets in transit", low: 4 * MIB, high: 12 * MIB, reason: null, planned: 12 * MIB },
    { kind: "activations", least: MIB, most: MIB, ...NONE, reason: "A compiled block chooses by itself what it keeps." },
  ],
  traffic: [
    { axis: "data", collective: "reduce_scatter", calls: 3, elements: 1024, bytes: 4096, formula: "Ψ(N−1)/N", formula_elements: 1024, formula_bytes: 4096, reason: null },
    { axis: "expert", collective: "all_to_all", calls: 8, elements: 10, bytes: 40, formula: null, formula_elements: null, formula_bytes: null, reason: "It depends." },
  ],
  off_plan: null,
  planned_by: "formulas",
  reason: null,
};

const answers = (found: Schema<"ResourceReport">) => ({ "GET /v1/jobs/job-1/resources": () => Response.json(found) });

test("each kind has its measured range beside the formula, or why there is none", async () => {
  given(answers(FOUND));
  const { container } = open(<JobResources id="job-1" ended />);
  expect(await screen.findByText("Measured in step 2.")).toBeTruthy();
  const of = (name: string) => screen.getByText(name).parentElement?.textContent ?? "";
  expect(of("Parameters")).toContain("8.0 MiB planned 8.0 MiB formula 8.0 MiB = 2Ψ");
  expect(of("Gradients")).toContain("5.0 MiB – 6.0 MiB planned 12.0 MiB formula 4.0 MiB – 12.0 MiB = 2Ψ/2");
  expect(of("Activations")).toContain("1.0 MiB A compiled block chooses by itself what it keeps.");
  await expectAccessible(container);
});

test("a peak off the plan is said", async () => {
  const allocated = { kind: "allocated", least: 30 * MIB, most: 30 * MIB, ...NONE, planned: 20 * MIB, reason: "The peak of all memory." };
  given(answers({ ...FOUND, memory: [...FOUND.memory, allocated], off_plan: "The fullest rank peaks 50% above its plan." }));
  open(<JobResources id="job-1" ended />);
  expect(await screen.findByText("The fullest rank peaks 50% above its plan.")).toBeTruthy();
  expect(screen.getByText("Allocated in total").parentElement?.textContent).toContain("30.0 MiB planned 20.0 MiB");
});

test("a plan that came with a module is marked as its submitter's", async () => {
  const reason = "A module of your own: its sizes cannot be computed from the spec.";
  const parameters = { kind: "parameters", least: 8 * MIB, most: 8 * MIB, ...NONE, planned: 9 * MIB, reason };
  given(answers({ ...FOUND, memory: [parameters], planned_by: "dry run", reason }));
  open(<JobResources id="job-1" ended />);
  expect(await screen.findByText(/^Planned by the submitter's dry run/)).toBeTruthy();
  expect(screen.getByText("Parameters").parentElement?.textContent).toContain("8.0 MiB planned 9.0 MiB");
});

test("each flow has its bytes, the formula's and their ratio", async () => {
  given(answers(FOUND));
  open(<JobResources id="job-1" ended />);
  const rows = within(await screen.findByRole("table")).getAllByRole("row");
  expect(rows.slice(1).map((row) => within(row).getAllByRole("cell").map((cell) => cell.textContent))).toEqual([
    ["reduce-scatter", "3", "4.0 KiB", "", "4.0 KiB = Ψ(N−1)/N", "1.000"],
    ["all-to-all", "8", "40 B", "", "It depends.", "–"],
  ]);
});

test("before the first probe the formulas stand alone", async () => {
  const memory = FOUND.memory.map((held) => ({ ...held, least: null, most: null }));
  given(answers({ ...FOUND, step: null, memory, traffic: [] }));
  open(<JobResources id="job-1" ended={false} />);
  expect(await screen.findByText(/^Not measured yet/)).toBeTruthy();
  expect(screen.getByText("None. Ranks exchange nothing on this layout.")).toBeTruthy();
  expect(screen.getAllByText("not measured yet")).toHaveLength(3);
});
