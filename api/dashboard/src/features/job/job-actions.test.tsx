import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { type SentRequest, given, open } from "../../testing/control-plane";
import { job, jobWire } from "../../testing/jobs";
import { JobActions } from "./job-actions";

const layout = { data: 2, elastic: null, zero: 1, shard: null, tensor: 2, tensor_shape: null, sequence: true, context: 1, ulysses: 1, context_inner: "ulysses", context_method: "ring", ring_window: null, pipeline: 1, schedule: "1f1b", virtual: 2, expert: 1, micro_batch: null };
const trains = (changes = {}) => job({ spec: { name: "llama-nano", train: { steps: 600, layout } }, ...changes });

const plane = (fault_injection: boolean, answers: Record<string, (request: SentRequest) => Response> = {}) =>
  given({ "GET /v1/server": () => Response.json({ version: "1", fault_injection }), ...answers });

test("faults are offered only where the control plane allows them, and to jobs that run", async () => {
  const requests = plane(false);
  const { unmount } = open(<JobActions job={trains()} />);
  await expect.poll(() => requests.length).toBe(1);
  expect(screen.queryByRole("button", { name: "Inject a fault…" })).toBeNull();
  unmount();
  plane(true);
  const again = open(<JobActions job={trains()} />);
  expect(await screen.findByRole("button", { name: "Inject a fault…" })).toBeTruthy();
  again.unmount();
  open(<JobActions job={trains({ state: "succeeded" })} />);
  expect(screen.queryAllByRole("button").map((button) => button.textContent)).toEqual(["Pin", "Delete"]);
  expect(screen.getByRole("link", { name: "Fork…" }).getAttribute("href")).toBe("/new?from=job-1");
});

test("a fault is injected once however often the button is pressed; another fault has another key", async () => {
  const refusal = () => Response.json({ title: "The job does not run", code: "job_not_running" }, { status: 409 });
  const requests = plane(true, { "POST /v1/jobs/job-1/faults": refusal });
  open(<JobActions job={trains()} />);
  await userEvent.click(await screen.findByRole("button", { name: "Inject a fault…" }));
  const dialog = screen.getByRole("dialog", { name: "Inject a fault into llama-nano" });
  await expectAccessible(dialog);
  const inject = async () => {
    const before = sent().length;
    await userEvent.click(screen.getByRole("button", { name: "Inject" }));
    await expect.poll(() => sent().length).toBe(before + 1);
    await screen.findByText("The job does not run");
  };
  const sent = () => requests.filter(({ method }) => method === "POST");
  await inject();
  await inject();
  await userEvent.selectOptions(screen.getByLabelText("Fault"), "kill-supervisor");
  await inject();
  expect(sent().map(({ body }) => JSON.parse(body) as unknown)).toEqual([{ kind: "kill-rank", rank: 0 }, { kind: "kill-rank", rank: 0 }, { kind: "kill-supervisor" }]);
  const keys = sent().map(({ headers }) => headers.get("Idempotency-Key"));
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
});

test("another layout is what the job has, changed; the control plane says what cannot run", async () => {
  let refused = true;
  const error = { field: "train.layout.tensor", message: "3 does not divide 4 heads.", remedy: "Tensor degrees that divide this model: 1, 2, 4." };
  const requests = plane(false, {
    "POST /v1/jobs/job-1/reshard": () => (refused ? Response.json({ title: "The layout cannot run", code: "invalid_layout", errors: [error] }, { status: 422 }) : Response.json(jobWire({ state: "resharding" }), { status: 202 })),
  });
  open(<JobActions job={trains()} />);
  await userEvent.click(screen.getByRole("button", { name: "Change layout…" }));
  await expectAccessible(screen.getByRole("dialog", { name: "Change the layout of llama-nano" }));
  expect(screen.getByText(/^4 ranks\./)).toBeTruthy();
  await userEvent.clear(screen.getByLabelText("tensor"));
  await userEvent.type(screen.getByLabelText("tensor"), "3");
  await userEvent.click(screen.getByRole("button", { name: "Change the layout" }));
  expect((await screen.findByRole("alert")).textContent).toContain("Tensor degrees that divide this model: 1, 2, 4.");
  refused = false;
  await userEvent.clear(screen.getByLabelText("tensor"));
  await userEvent.type(screen.getByLabelText("tensor"), "1");
  await userEvent.click(screen.getByRole("button", { name: "Change the layout" }));
  await expect.poll(() => screen.queryByRole("dialog")).toBeNull();
  const [, last] = requests.filter(({ method }) => method === "POST");
  expect(JSON.parse(last?.body ?? "")).toEqual({ layout: { ...layout, tensor: 1 } });
});
