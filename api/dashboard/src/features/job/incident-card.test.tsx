import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { incident } from "../../testing/history";
import { IncidentCard, formatRanks } from "./incident-card";

test("an incident is its summary; stacks, collectives and lines are folded away", async () => {
  const hang = incident({
    cause: "hang",
    stacks: [{ ranks: [0, 1, 3], stack: "MainThread: forward" }],
    waiting: [{ ranks: [0, 1], group: "data", members: [0, 1, 2], seq: 41, op: "all_reduce", seconds: 30.5 }],
    nccl_ras: ["NCCL's RAS: rank 3 does not answer"],
    log: ["step 120", "bye"],
    repair: { generation: 2, restored: 120, step: 121, seconds: 1.5, spares: [] },
  });
  const { container } = render(<IncidentCard incident={hang} />);
  expect(screen.getByText(hang.summary)).toBeTruthy();
  expect(screen.getByText("repaired in 1.5 s")).toBeTruthy();
  expect([...container.querySelectorAll("details")].map((one) => [one.open, one.querySelector("summary")?.textContent])).toEqual([
    [false, "Unfinished collectives"],
    [false, "Launch counts of NCCL"],
    [false, "Stacks of ranks 0, 1, 3"],
    [false, "Last log lines of rank 1"],
  ]);
  expect(container.querySelector("li")?.textContent).toBe("all_reduce number 41 of data (ranks 0 to 2): ranks 0, 1 waited 31 s");
  await expectAccessible(container);
});

test.each([
  [[3], "rank 3"],
  [[2, 0, 1, 7], "ranks 0 to 2, 7"],
  [[4, 5], "ranks 4, 5"],
])("ranks %j are %s", (ranks, words) => {
  expect(formatRanks(ranks)).toBe(words);
});
