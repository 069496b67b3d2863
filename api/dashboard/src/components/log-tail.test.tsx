import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { LogLine } from "../services/logs";
import { expectAccessible } from "../testing/accessible";
import { LogTail } from "./log-tail";

const LINES: LogLine[] = [
  { n: 1, rank: 0, stream: "stdout", text: "hello" },
  { n: 2, rank: 3, stream: "stderr", text: "careful" },
];

test("lines carry their rank, and stderr looks different", async () => {
  const { container } = render(<LogTail lines={LINES} worldSize={4} rank={null} onRank={() => undefined} nothing="" />);
  expect(screen.getByTitle("rank 3")).toBeTruthy();
  expect(screen.getByText("careful").closest(".stderr")).not.toBeNull();
  await expectAccessible(container);
});

test("a rank can be chosen, and all again", async () => {
  const onRank = vi.fn();
  const { rerender } = render(<LogTail lines={LINES} worldSize={4} rank={null} onRank={onRank} nothing="" />);
  await userEvent.selectOptions(screen.getByLabelText("Rank"), "rank 3");
  expect(onRank).toHaveBeenLastCalledWith(3);
  rerender(<LogTail lines={LINES} worldSize={4} rank={3} onRank={onRank} nothing="" />);
  await userEvent.selectOptions(screen.getByLabelText("Rank"), "All ranks");
  expect(onRank).toHaveBeenLastCalledWith(null);
});

test("no lines is said", () => {
  render(<LogTail lines={[]} worldSize={1} rank={null} onRank={() => undefined} nothing="This job wrote nothing." />);
  expect(screen.getByText("This job wrote nothing.")).toBeTruthy();
});
