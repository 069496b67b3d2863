import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Entry } from "../../api/events";
import { expectAccessible } from "../../testing/accessible";
import { History } from "./history";

const at = new Date("2026-11-21T12:00:00Z");
const ENTRIES: Entry[] = [
  { id: "1.0.0", at, kind: "state", state: "running", reason: null, message: null },
  { id: "2.0.0", at, kind: "checkpoint", step: 100, path: "/c", bytes: 14_600_000, seconds: 0.21 },
  { id: "3.0.0", at, kind: "incident", cause: "exception", rank: 3, node: "node-a", message: "boom\nmore", traceback: "Traceback: here" },
];

test("a node's long id is cut, and whole where one points at it", () => {
  const node = "f".repeat(56);
  const { container } = render(<History entries={[{ id: "1.0.0", at, kind: "incident", cause: "rank_lost", rank: 0, node, message: "gone", traceback: null }]} />);
  expect(container.textContent).not.toContain(node);
  expect(screen.getByTitle(node).textContent).toBe("f".repeat(12));
});

test("what happened stands newest first", async () => {
  const { container } = render(<History entries={ENTRIES} />);
  const items = screen.getAllByRole("listitem").map((item) => item.textContent);
  expect(items[0]).toContain("exception · rank 3 · node-a");
  expect(items[0]).toContain("Traceback: here");
  expect(items[1]).toContain("at step 100 · 13.9 MiB, 0.21 s");
  expect(items[2]).toContain("running");
  await expectAccessible(container);
});
