import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, open } from "../../testing/control-plane";
import { Ending, ending } from "../../testing/ending";
import { job } from "../../testing/jobs";
import { JobProfiles } from "./job-profiles";

const PROFILES = "/v1/jobs/job-1/profiles";
const wire = (more: object) => ({ id: "profile-1", job: "job-1", attempt: 1, rank: 1, kind: "cpu", seconds: 10, state: "open", message: null, file: null, actor: "local", asked_at: "2026-01-01T00:00:00Z", settled_at: null, ...more });

test("a rank is profiled once per press, and its file can be downloaded", async () => {
  let asked = false;
  const requests = given({
    [`GET ${PROFILES}`]: () => Response.json({ items: asked ? [wire({ state: "done", message: "10 s of process 7", file: "profiles/a b.json" })] : [], next: null }),
    [`POST ${PROFILES}`]: () => {
      asked = true;
      return Response.json(wire({}), { status: 202 });
    },
  });
  const { container } = open(<JobProfiles job={job({ state: "running", world_size: 2 })} />);
  expect(await screen.findByText(/speedscope/)).toBeTruthy();
  await userEvent.clear(screen.getByRole("spinbutton", { name: "Rank" }));
  await userEvent.type(screen.getByRole("spinbutton", { name: "Rank" }), "1");
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Kind" }), "cpu");
  await userEvent.click(screen.getByRole("button", { name: "Profile" }));
  const link = await screen.findByRole("link", { name: /Download the cpu of rank 1/ });
  expect(link.getAttribute("href")).toBe("/v1/jobs/job-1/artifacts/profiles/a%20b.json");
  const sent = requests.filter(({ method }) => method === "POST");
  expect(sent).toHaveLength(1);
  expect(sent[0]?.headers.get("Idempotency-Key")).toMatch(/^page-profile-[0-9a-f]{32}$/);
  await expectAccessible(container);
});

test("a program records itself as a training does, and memory is recorded on GPUs", () => {
  given({ [`GET ${PROFILES}`]: () => Response.json({ items: [], next: null }) });
  const kinds = () => screen.getAllByRole("option").map((option) => option.getAttribute("value"));
  const { unmount } = open(<JobProfiles job={job({ spec: { command: "true" }, device: "cpu" })} />);
  expect(kinds()).toEqual(["stacks", "cpu", "operators"]);
  unmount();
  const on = open(<JobProfiles job={job({ device: "cpu" })} />);
  expect(kinds()).toEqual(["stacks", "cpu", "operators"]);
  on.unmount();
  open(<JobProfiles job={job({ device: "cuda" })} />);
  expect(kinds()).toEqual(["stacks", "cpu", "operators", "memory"]);
});

test("a failure has its reason, and a refusal is shown", async () => {
  given({
    [`GET ${PROFILES}`]: () => Response.json({ items: [wire({ state: "failed", message: "the attempt ended" })], next: null }),
    [`POST ${PROFILES}`]: () => Response.json({ title: "Too many profiles of one job", code: "too_many_profiles" }, { status: 409 }),
  });
  open(<JobProfiles job={job({ state: "running" })} />);
  expect(await screen.findByText("the attempt ended")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Profile" }));
  expect((await screen.findByRole("alert")).textContent).toContain("Too many profiles");
});

test("profiles stay while they are read once more at the job's end", async () => {
  given({ [`GET ${PROFILES}`]: () => Response.json({ items: [wire({ state: "failed", message: "too late" })], next: null }) });
  const { end, answer, asked } = ending("/profiles");
  open(<Ending>{(state) => <JobProfiles job={job({ state })} />}</Ending>);
  await screen.findByText("too late");
  await end();
  await expect.poll(asked).toBe(1);
  expect(screen.getByText("too late")).toBeTruthy();
  answer(Response.json({ items: [wire({ state: "failed", message: "the attempt ended" })], next: null }));
  expect(await screen.findByText("the attempt ended")).toBeTruthy();
});

test("a job that does not run, and a rank that it lacks, cannot be profiled", async () => {
  given({ [`GET ${PROFILES}`]: () => Response.json({ items: [], next: null }) });
  const { unmount } = open(<JobProfiles job={job({ state: "queued" })} />);
  expect(screen.getByRole("button", { name: "Profile" })).toHaveProperty("disabled", true);
  unmount();
  open(<JobProfiles job={job({ state: "running", world_size: 1 })} />);
  await userEvent.type(screen.getByRole("spinbutton", { name: "Rank" }), "7");
  expect(screen.getByRole("button", { name: "Profile" })).toHaveProperty("disabled", true);
});
