import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import type { Measure, RankSample } from "../../api/ranks";
import { expectAccessible } from "../../testing/accessible";
import { sample } from "../../testing/ranks";
import { RankGrid } from "./rank-grid";

function Grid({ of, measure = "compute" }: { of: RankSample; measure?: Measure }) {
  const [chosen, choose] = useState<number | null>(null);
  return <RankGrid sample={of} measure={measure} chosen={chosen} onChoose={choose} />;
}

const cell = (name: RegExp) => screen.getByRole("gridcell", { name });
const mesh = sample({ pipeline: 2, data: 2, context: 1, tensor: 2 }, (rank) => 0.05 + 0.001 * rank);

test("rows are the outermost axis, and each rank says where it stands", async () => {
  const { container } = render(<Grid of={mesh} />);
  expect(screen.getAllByRole("row").map((row) => within(row).getAllByRole("gridcell").length)).toEqual([4, 4]);
  expect(cell(/^rank 6, /).getAttribute("aria-label")).toBe("rank 6, pipeline 1 · data 1 · tensor 0, 56.0 ms");
  await expectAccessible(container);
});

test("the slow rank is outlined, has a word for it, and is where the tab key stops", () => {
  render(<Grid of={{ ...mesh, slow: { rank: 3, message: "rank 3 computes 48 ms longer than its peers" } }} />);
  const slow = cell(/^rank 3, .*computes longer than its peers$/);
  expect(slow.classList.contains("slow")).toBe(true);
  expect(screen.getAllByRole("gridcell").filter((one) => one.tabIndex === 0)).toEqual([slow]);
});

test("arrows lead from rank to rank, to the ends and no further", async () => {
  render(<Grid of={mesh} />);
  await userEvent.tab();
  const ways: [string, number][] = [["{ArrowLeft}", 0], ["{ArrowRight}", 1], ["{ArrowDown}", 5], ["{End}", 7], ["{ArrowRight}", 7], ["{ArrowUp}", 3], ["{Home}", 0]];
  for (const [key, rank] of ways) {
    await userEvent.keyboard(key);
    expect(document.activeElement?.getAttribute("data-rank")).toBe(String(rank));
    expect(document.activeElement?.getAttribute("aria-selected")).toBe("true");
  }
});

test("the measure that is chosen colours the ranks; what is not known has no colour", () => {
  const { rerender } = render(<Grid of={mesh} />);
  expect(cell(/^rank 0, /).classList.contains("level-0")).toBe(true);
  expect(cell(/^rank 7, /).classList.contains("level-6")).toBe(true);
  rerender(<Grid of={mesh} measure="memory" />);
  expect(cell(/^rank 7, .*–$/).classList.contains("level-none")).toBe(true);
});

test("512 ranks are one stop of the tab key, and a new sample draws only the ranks that changed", async () => {
  const drawn = vi.spyOn(SVGElement.prototype, "setAttribute");
  const many = sample({ pipeline: 8, data: 8, context: 1, tensor: 8 }, (rank) => (rank === 0 ? 0.1 : 0.05));
  const { container, rerender } = render(<Grid of={many} />);
  expect(container.querySelectorAll("[role=gridcell]")).toHaveLength(512);
  expect(container.querySelectorAll("[tabindex='0']")).toHaveLength(1);
  drawn.mockClear();
  const compute = many.values.compute.map((value, rank) => (rank === 100 ? 0.0511 : value));
  rerender(<Grid of={{ ...many, position: 2, values: { ...many.values, compute } }} />);
  expect(container.querySelector("[data-rank='100']")?.getAttribute("aria-label")).toMatch(/51\.1 ms$/);
  expect(drawn.mock.calls.length).toBeLessThan(10);
  drawn.mockRestore();
  await userEvent.tab();
  await userEvent.keyboard("{ArrowRight}");
  expect(document.activeElement?.getAttribute("data-rank")).toBe("1");
});
