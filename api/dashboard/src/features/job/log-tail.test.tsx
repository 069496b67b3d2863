import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { type LogLine, toLine } from "../../api/logs";
import { expectAccessible } from "../../testing/accessible";
import { LogTail } from "./log-tail";

const LINES: LogLine[] = [
  { position: 1, rank: 0, stream: "stdout", text: "hello", at: null },
  { position: 2, rank: 3, stream: "stderr", text: "careful", at: new Date("2026-11-21T12:00:00Z") },
];

test("lines carry their rank and time, and stderr looks different", async () => {
  const { container } = render(<LogTail lines={LINES} width={1} nothing="" />);
  expect(screen.getByTitle("rank 3")).toBeTruthy();
  expect(container.querySelector("time")?.dateTime).toBe("2026-11-21T12:00:00.000Z");
  expect(screen.getByText("careful").closest(".stderr")).not.toBeNull();
  await expectAccessible(container);
});

test("the output of a command beside a rank is not taken for the rank's", async () => {
  const shown = toLine({ position: 3, rank: 0, attempt: 1, line: 3, stream: "exec", text: "ERROR of a file", ts: null });
  const opened = toLine({ position: 4, rank: 0, attempt: 1, line: 4, stream: "gate", text: "local opened a terminal", ts: null });
  const { container } = render(<LogTail lines={[shown, opened, ...LINES]} width={1} nothing="" />);
  expect(screen.getByText("ERROR of a file").closest(".exec")?.textContent).toContain("exec");
  expect(screen.getAllByTitle("Output of a command beside the rank")).toHaveLength(1);
  expect(screen.getByText("local opened a terminal").closest(".gate")?.textContent).toContain("gate");
  await expectAccessible(container);
});

test("of one rank, ranks are not said", () => {
  const { container } = render(<LogTail lines={LINES} width={0} nothing="" />);
  expect(container.querySelector(".log-rank")).toBeNull();
});

test("no lines is said", () => {
  render(<LogTail lines={[]} width={0} nothing="This job wrote no log lines." />);
  expect(screen.getByText("This job wrote no log lines.")).toBeTruthy();
});
