import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import type { Schema } from "../../api/http";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { ClusterQueue } from "./cluster-queue";

const waits = (changes: Partial<Schema<"QueuedJob">>): Schema<"QueuedJob"> => ({
  position: 1, job: "job-1", name: "llama", actor: "ada", device: "cuda", ranks: 8, spares: 1, since: "2020-01-01T00:00:00Z", attempt: 0, retry_at: null,
  reason: "waiting_for_devices", message: "Waits for 9 GPUs; 4 are free.", ...changes,
});
const RUNS: Schema<"RunningJob"> = { job: "job-9", name: "gpt", actor: "bob", state: "running", attempt: 1, device: "cuda", devices: 12, nodes: 2, since: "2020-01-01T00:00:00Z" };

test("waiting jobs have their place and reason, running ones their devices; more are read on request", async () => {
  given({
    "GET /v1/queue": ({ url }) =>
      Response.json(url.searchParams.get("after") === "job-1"
        ? { items: [waits({ position: 2, job: "job-2", name: "later", message: null, device: "auto", spares: 0, retry_at: "2999-01-01T00:00:00Z" })], total: 2, next: null }
        : { items: [waits({})], total: 2, next: "job-1" }),
    "GET /v1/queue/running": () => Response.json({ items: [RUNS], next: null }),
  });
  const { container } = open(<ClusterQueue />, "/cluster/queue");
  const waiting = within(await screen.findByRole("region", { name: "Waiting" }));
  expect(waiting.getByText("Waits for 9 GPUs; 4 are free.")).toBeTruthy();
  expect(waiting.getByText("8 + 1 GPUs")).toBeTruthy();
  expect(waiting.getByRole("link", { name: "llama" }).getAttribute("href")).toBe("/jobs/job-1");
  const running = within(await screen.findByRole("region", { name: "With devices" }));
  expect(running.getByText("12 GPUs")).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "More" }));
  expect(await screen.findByText(/A dispatcher has not looked at it yet\. Next try at/)).toBeTruthy();
  expect(screen.queryByRole("button", { name: "More" })).toBeNull();
});

test("an empty queue says what will come", async () => {
  given({ "GET /v1/queue": () => Response.json({ items: [], total: 0, next: null }), "GET /v1/queue/running": () => Response.json({ items: [], next: null }) });
  const { container } = open(<ClusterQueue />, "/cluster/queue");
  expect(await screen.findByText("No job waits")).toBeTruthy();
  expect(await screen.findByText("No job has devices")).toBeTruthy();
  await expectAccessible(container);
});
