import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { nodeWire } from "../../testing/nodes";
import { ClusterHistory } from "./cluster-history";

const RAN: Schema<"PastAttempt"> = {
  job: "job-1", name: "llama", actor: "ada", state: "succeeded", attempt: 2, device: "cuda", devices: 8, since: "2026-11-21T10:00:00Z", until: "2026-11-21T11:00:00Z",
  outcome: "node_lost", device_s: 28_800,
};
const LOST: Schema<"NodeChange"> = { at: "2026-11-21T11:00:00Z", node: "abcdef0123456789", host: "", kind: "lost", actor: null, message: "Ray reports that it is dead; 1 gang was on it." };

const plane = (attempts = [RAN], changes = [LOST]) =>
  given({
    "GET /v1/nodes": () => Response.json({ items: [nodeWire()] }),
    "GET /v1/cluster/time": () => Response.json({ since: "2026-11-21T10:00:00Z", until: "2026-11-21T11:00:00Z", items: attempts.map(() => ({ actor: "ada", device: "cuda", jobs: 3, device_s: 86_400 })) }),
    "GET /v1/cluster/attempts": () => Response.json({ items: attempts, next: null }),
    "GET /v1/cluster/changes": () => Response.json({ items: changes, next: null }),
  });

test("who used how much, what ran, and what happened to the machines", async () => {
  plane();
  const { container } = open(<ClusterHistory />, "/cluster/history");
  expect(within(await screen.findByRole("region", { name: "Device time by user" })).getByText("1 d 0 h")).toBeTruthy();
  const ran = within(await screen.findByRole("region", { name: "What ran" }));
  expect(ran.getByText("8 h 00 min")).toBeTruthy();
  expect(ran.getByText("node lost")).toBeTruthy();
  expect(ran.getByText("attempt 2")).toBeTruthy();
  const changed = within(await screen.findByRole("region", { name: "Changes of machines" }));
  expect(changed.getByText("Ray reports that it is dead; 1 gang was on it.")).toBeTruthy();
  expect(changed.getByText("abcdef012345")).toBeTruthy();
  await expectAccessible(container);
});

test("of one machine, whose id is in the address", async () => {
  const requests = plane();
  open(<ClusterHistory />, "/cluster/history");
  await userEvent.selectOptions(await screen.findByLabelText("Machine"), await screen.findByRole("option", { name: "gpu-1" }));
  await expect.poll(() => requests.filter(({ url }) => url.searchParams.get("node") === "0123456789abcdef").map(({ url }) => url.pathname)).toEqual(["/v1/cluster/attempts", "/v1/cluster/changes"]);
  expect(location.search).toBe("?node=0123456789abcdef");
  expect(screen.queryByRole("region", { name: "Device time by user" })).toBeNull();
});

test("an empty range says what will come", async () => {
  plane([], []);
  const { container } = open(<ClusterHistory />, "/cluster/history?range=week");
  expect(await screen.findByText("No job ended in this range")).toBeTruthy();
  expect(await screen.findByText("Nothing happened to the machines in this range")).toBeTruthy();
  await expectAccessible(container);
});
