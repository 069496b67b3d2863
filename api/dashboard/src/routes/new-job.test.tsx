import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { beforeEach, expect, test, vi } from "vitest";
import type { Schema } from "../api/http";
import { expectAccessible } from "../testing/accessible";
import { type SentRequest, given, open } from "../testing/control-plane";
import { jobWire } from "../testing/jobs";
import { sweepWire } from "../testing/sweeps";
import { NewJobPage } from "./new-job";

const QUICK = "name: quick\ntrain:\n  steps: 20\n";
const OTHER = "name: other\ntrain:\n  steps: 30\n";

const preview: Schema<"Preview"> = {
  name: "quick",
  layout: "data 2 × tensor 2",
  batch: "",
  layout_choice: null,
  world_size: 4,
  spares: 1,
  global_batch: 16,
  data: 2,
  microbatches: 2,
  command: null,
  micro_batch: 4,
  tokens_per_step: 4096,
  tokens: 81_920,
  parameters: 803_968,
  precision: "fp32",
  compile: false,
  choices: ["precision is fp32: the devices are CPUs."],
  memory: {
    device: "cpu",
    source: "formulas",
    fits: true,
    bytes: 2 ** 30,
    needed_bytes: 3 * 2 ** 29,
    reserved_bytes: 2 ** 29,
    device_bytes: 2 ** 34,
    kinds: [{ kind: "parameters", bytes: 2 ** 29 }, { kind: "activations", bytes: 2 ** 29 }],
    host: [],
    notes: [],
  },
  needs_dry_run: false,
  elastic_layouts: [],
  resume: null,
  warnings: [],
};

const refusal = () =>
  Response.json(
    {
      title: "Invalid job spec",
      code: "invalid_spec",
      detail: "",
      errors: [{ field: "train.steps", message: "'many' is no whole number.", remedy: "Write a whole number without quotes." }],
    },
    { status: 422 },
  );

const schema = { type: "object", properties: { name: { type: "string", description: "Its name." }, train: { type: "object", properties: { steps: { type: "integer", minimum: 1, description: "Optimizer steps." } } } } };

const plane = (submitted: (request: SentRequest) => Response = () => Response.json(jobWire({ id: "job-9" }), { status: 201 }), previewed = preview) =>
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }, { name: "other", about: "Another one.", text: OTHER }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "POST /v1/jobs/preview": ({ body }) => (body.includes("many") ? refusal() : Response.json(previewed)),
    "POST /v1/jobs": submitted,
  });

const editor = () => screen.findByRole<HTMLTextAreaElement>("textbox", { name: "Job spec, YAML" });

beforeEach(() => { sessionStorage.clear(); });

test("the first template is there, with what it would run as", async () => {
  plane();
  const { container } = open(<NewJobPage />, "/new");
  expect((await editor()).value).toBe(QUICK);
  expect(await screen.findByText("4 and 1 spare")).toBeTruthy();
  expect(screen.getByText("16 sequences = 2 data × 2 micro-batches × 4")).toBeTruthy();
  expect(screen.getByText("803,968 (804k)")).toBeTruthy();
  expect(screen.getByText("1.5 GiB of 16.0 GiB per node: fits")).toBeTruthy();
  expect(screen.getByText("parameters 512.0 MiB, activations 512.0 MiB, the process itself 512.0 MiB")).toBeTruthy();
  await expectAccessible(container);
});

test.each([
  ["has no plan of the server's", { memory: null, needs_dry_run: true }, /^not planned: the server does not run a module/],
  ["has the plan of a dry run", { memory: preview.memory && { ...preview.memory, source: "dry run" as const } }, "1.5 GiB of 16.0 GiB per node: fits, by dry run"],
])("a module of the user's own %s", async (_, changes, said) => {
  plane(undefined, { ...preview, ...changes });
  open(<NewJobPage />, "/new");
  expect(await screen.findByText(said)).toBeTruthy();
});

test("what is wrong stands beside the text, and leads to its line", async () => {
  plane();
  const { container } = open(<NewJobPage />, "/new");
  const area = await editor();
  await userEvent.clear(area);
  await userEvent.type(area, "name: quick\ntrain:\n  steps: many");
  expect(await screen.findByText("'many' is no whole number.")).toBeTruthy();
  expect(screen.getByText("Write a whole number without quotes.")).toBeTruthy();
  expect(container.querySelector("[data-wrong]")?.textContent).toBe("3");
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Line 3" }));
  expect(document.activeElement).toBe(area);
  expect(area.selectionStart).toBe(area.value.indexOf("steps"));
});

test("what has no effect stands below what would run, and leads to its line", async () => {
  const warnings = [{ field: "train.steps", message: "The warm-up is longer.", remedy: "Use more steps." }];
  plane(undefined, { ...preview, warnings });
  const { container } = open(<NewJobPage />, "/new");
  expect(await screen.findByRole("region", { name: "Warnings" })).toBeTruthy();
  expect(screen.getByText("The warm-up is longer.")).toBeTruthy();
  expect(screen.getByText("Use more steps.")).toBeTruthy();
  expect(screen.getByText("4 and 1 spare")).toBeTruthy();
  expect(container.querySelector("[data-wrong]")).toBeNull();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Line 3" }));
  const area = await editor();
  expect(area.selectionStart).toBe(area.value.indexOf("steps"));
});

test("help follows the cursor", async () => {
  plane();
  open(<NewJobPage />, "/new");
  const area = await editor();
  await userEvent.click(area);
  area.setSelectionRange(QUICK.indexOf("20"), QUICK.indexOf("20"));
  await userEvent.keyboard("{ArrowRight}");
  expect(await screen.findByText("Optimizer steps.")).toBeTruthy();
  expect(screen.getByText("whole number, at least 1")).toBeTruthy();
});

test("submitting leads to the job, with a key that makes it one job", async () => {
  const requests = plane();
  open(<NewJobPage />, "/new");
  await editor();
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  await expect.poll(() => location.pathname).toBe("/jobs/job-9");
  const [sent] = requests.filter(({ method, url }) => method === "POST" && url.pathname === "/v1/jobs");
  expect(sent?.body).toBe(QUICK);
  expect(sent?.headers.get("Content-Type")).toBe("application/yaml");
  expect(sent?.headers.get("Idempotency-Key")).toMatch(/^page-/);
});

test("the same text sent again has the same key, another text has another", async () => {
  const requests = plane(() => Response.json({ title: "The database does not answer", code: "database_unreachable" }, { status: 503 }));
  open(<NewJobPage />, "/new");
  const area = await editor();
  const submit = async () => {
    await userEvent.click(screen.getByRole("button", { name: "Submit" }));
    await screen.findByText("The database does not answer");
  };
  await submit();
  await submit();
  await userEvent.type(area, "# more");
  await submit();
  const sent = requests.filter(({ method, url }) => method === "POST" && url.pathname === "/v1/jobs");
  const keys = sent.map(({ headers }) => headers.get("Idempotency-Key"));
  expect(keys).toHaveLength(3);
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
});

/** The control plane with a submission that waits for `answer`, and the keys that were sent. */
function holding() {
  const requests = plane();
  const before = fetch;
  const waiting: ((answer: Response) => void)[] = [];
  const keys: (string | null)[] = [];
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    if (path !== "/v1/jobs") return before(path, init);
    keys.push(new Headers(init.headers).get("Idempotency-Key"));
    return new Promise<Response>((resolve) => { waiting.push(resolve); });
  });
  const answer = async () => {
    const made = Response.json(jobWire({ id: "job-9" }), { status: 201 });
    waiting.shift()?.(made);
    await expect.poll(() => made.bodyUsed).toBe(true);
    await new Promise((resolve) => { setTimeout(resolve, 0); });
  };
  return { requests, keys, answer };
}

test.each(["", "# mine"])("a text whose answer was lost is there after a reload, and makes one job (added to the template: %j)", async (added) => {
  let template = QUICK;
  let lost = true;
  const requests = given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: template }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "POST /v1/jobs/preview": () => Response.json(preview),
    "POST /v1/jobs": () => (lost ? Response.json({ title: "The database does not answer", code: "database_unreachable" }, { status: 503 }) : Response.json(jobWire({ id: "job-9" }), { status: 201 })),
  });
  const { unmount } = open(<NewJobPage />, "/new");
  const area = await editor();
  if (added !== "") await userEvent.type(area, added);
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  await screen.findByText("The database does not answer");
  unmount();
  template = OTHER;
  lost = false;
  open(<NewJobPage />, "/new");
  expect((await editor()).value).toBe(QUICK + added);
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  await expect.poll(() => location.pathname).toBe("/jobs/job-9");
  const sent = requests.filter(({ method, url }) => method === "POST" && url.pathname === "/v1/jobs");
  expect(sent.map(({ body }) => body)).toEqual([QUICK + added, QUICK + added]);
  expect(sent[1]?.headers.get("Idempotency-Key")).toBe(sent[0]?.headers.get("Idempotency-Key"));
  expect(sessionStorage).toHaveLength(0);
});

test("what is typed while a text is submitted stays, and the job is linked", async () => {
  const { keys, answer } = holding();
  const { container, unmount } = open(<NewJobPage />, "/new");
  await userEvent.click(await screen.findByRole("button", { name: "Submit" }));
  await screen.findByRole("button", { name: "Submitting…" });
  await userEvent.type(await editor(), "# next");
  await answer();
  expect((await screen.findByRole("link", { name: "job-9" })).getAttribute("href")).toBe("/jobs/job-9");
  expect(location.pathname).toBe("/new");
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  await expect.poll(() => keys.length).toBe(2);
  expect(keys[1]).not.toBe(keys[0]);
  unmount();
  open(<NewJobPage />, "/new");
  expect((await editor()).value).toBe(`${QUICK}# next`);
});

test("a submission whose form was left opens no page, and sending its text again makes no other job", async () => {
  const { keys, answer } = holding();
  const { unmount } = open(<NewJobPage />, "/new");
  await userEvent.click(await screen.findByRole("button", { name: "Submit" }));
  await expect.poll(() => keys.length).toBe(1);
  unmount();
  await answer();
  expect(location.pathname).toBe("/new");
  open(<NewJobPage />, "/new");
  await userEvent.click(await screen.findByRole("button", { name: "Submit" }));
  await expect.poll(() => keys.length).toBe(2);
  expect(keys[1]).toBe(keys[0]);
  await answer();
  await expect.poll(() => location.pathname).toBe("/jobs/job-9");
});

test("a draft outlives the page, and a template does not replace it unasked", async () => {
  plane();
  const { unmount } = open(<NewJobPage />, "/new");
  await userEvent.selectOptions(await screen.findByLabelText("Template"), "other");
  expect((await editor()).value).toBe(OTHER);
  await userEvent.type(await editor(), "# mine");
  unmount();
  open(<NewJobPage />, "/new");
  expect((await editor()).value).toBe(`${OTHER}# mine`);
  await userEvent.selectOptions(screen.getByLabelText("Template"), "quickstart");
  await expectAccessible(screen.getByRole("dialog", { name: "Replace the spec with quickstart?" }));
  await userEvent.click(screen.getByRole("button", { name: "Keep my text" }));
  expect((await editor()).value).toBe(`${OTHER}# mine`);
  await userEvent.selectOptions(screen.getByLabelText("Template"), "quickstart");
  await userEvent.click(screen.getByRole("button", { name: "Replace the spec" }));
  expect((await editor()).value).toBe(QUICK);
});

test("a job goes on from another's checkpoint with its spec, and has a draft of its own", async () => {
  sessionStorage.setItem("shardyard.draft", "mine");
  const parent = jobWire({ id: "job-1", spec: { name: "quick", labels: {}, train: { steps: 20, layout: { data: 2 } } } });
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "GET /v1/jobs/job-1": () => Response.json(parent),
    "GET /v1/jobs/job-1/submitted-spec": () => Response.json({ job: "job-1", format: null, text: null, resume: null, layout_changed: false }),
    "POST /v1/jobs/preview": () => Response.json(preview),
  });
  const address = "/new?from=job-1&checkpoint=%2Fc%2Fjob-1%2Fstep-00000010";
  const { container, unmount } = open(<NewJobPage />, address);
  const area = await editor();
  expect(area.value).toContain("resume_from: /c/job-1/step-00000010");
  expect(area.value).toContain("parent: job-1");
  expect(area.value).toContain("name: quick-resumed");
  expect(container.querySelector(".origin")?.textContent).toContain("Resumes from step-00000010 of");
  await expectAccessible(container);
  await userEvent.type(area, "# changed");
  unmount();
  open(<NewJobPage />, address);
  expect((await editor()).value).toContain("# changed");
  expect(sessionStorage.getItem("shardyard.draft")).toBe("mine");
});

test("a fork begins with the text of its parent as it is at this visit", async () => {
  const parent = jobWire({ id: "job-1", spec: { name: "quick", labels: {}, train: { steps: 20, layout: { data: 4 } } } });
  let changed = false;
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "GET /v1/jobs/job-1": () => Response.json(parent),
    "GET /v1/jobs/job-1/submitted-spec": () => Response.json({ job: "job-1", format: "yaml", text: "name: quick # why\ntrain: {}\n", resume: null, layout_changed: changed }),
    "POST /v1/jobs/preview": () => Response.json(preview),
  });
  function Visits() {
    const [here, go] = useState(true);
    return <><button onClick={() => { go(!here); }}>Go</button>{here && <NewJobPage />}</>;
  }
  open(<Visits />, "/new?from=job-1");
  expect((await editor()).value).not.toContain("layout");
  await userEvent.click(screen.getByRole("button", { name: "Go" }));
  changed = true;
  await userEvent.click(screen.getByRole("button", { name: "Go" }));
  expect((await editor()).value).toContain("data: 4");
});

test.each([null, "name: quick # why\ntrain:\n  resume_from: other\n"])("a fork begins with the checkpoint of its parent (text %s)", async (text) => {
  const began = "/c/job-0/step-00000010";
  const spec = { name: "quick", labels: {}, train: { steps: 20, resume_from: "other" } };
  const submitted = { job: "job-1", format: text && "yaml", text, resume: began, layout_changed: false };
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "GET /v1/jobs/job-1": () => Response.json(jobWire({ id: "job-1", spec })),
    "GET /v1/jobs/job-1/submitted-spec": () => Response.json(submitted),
    "POST /v1/jobs/preview": () => Response.json(preview),
  });
  open(<NewJobPage />, "/new?from=job-1");
  expect((await editor()).value).toContain(`resume_from: ${began}\n`);
});

test("a fork of a job whose text was not kept has its seed to the last digit", async () => {
  const spec = { name: "trial-1", labels: {}, train: { steps: 20, seed: 5 } };
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "GET /v1/jobs/job-1": () => new Response(JSON.stringify(jobWire({ id: "job-1", spec })).replace('"seed":5', '"seed":9223372036854775807')),
    "GET /v1/jobs/job-1/submitted-spec": () => Response.json({ job: "job-1", format: null, text: null, resume: null, layout_changed: false }),
    "POST /v1/jobs/preview": () => Response.json(preview),
  });
  open(<NewJobPage />, "/new?from=job-1");
  expect((await editor()).value).toContain("  seed: 9223372036854775807\n");
});

test("a parent that is not there is said", async () => {
  given({ "GET /v1/templates": () => Response.json({ items: [] }) });
  open(<NewJobPage />, "/new?from=job-0");
  expect(await screen.findByRole("alert")).toBeTruthy();
});

test("a spec with a part sweep is submitted as a sweep, without a preview", async () => {
  const text = "name: tune\nsweep:\n  parameters:\n    train.optimizer.lr: [0.001, 0.01]\n";
  const answers = [refusal(), Response.json(sweepWire({ id: "sweep-7" }), { status: 201 })];
  const requests = given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "sweep", about: "A sweep.", text }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "POST /v1/sweeps": () => answers.shift() ?? Response.error(),
  });
  const { container } = open(<NewJobPage />, "/new");
  await editor();
  expect(screen.getByText(/It has no preview/)).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  expect(await screen.findByText("'many' is no whole number.")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  await expect.poll(() => location.pathname).toBe("/sweeps/sweep-7");
  const sent = requests.filter(({ method }) => method === "POST");
  expect(sent.map(({ url }) => url.pathname)).toEqual(["/v1/sweeps", "/v1/sweeps"]);
  expect(sent[1]?.body).toBe(text);
  expect(sent[1]?.headers.get("Idempotency-Key")).toBe(sent[0]?.headers.get("Idempotency-Key"));
});

test("a refusal is of the text that was sent: another text does not have it", async () => {
  const text = "name: tune\nsweep:\n  parameters:\n    train.optimizer.lr: [0.001, 0.01]\n";
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "sweep", about: "A sweep.", text }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "POST /v1/sweeps": refusal,
  });
  open(<NewJobPage />, "/new");
  const area = await editor();
  await userEvent.click(screen.getByRole("button", { name: "Submit" }));
  expect(await screen.findByText("'many' is no whole number.")).toBeTruthy();
  await userEvent.type(area, "# more");
  expect(screen.queryByText("'many' is no whole number.")).toBeNull();
  expect(screen.getByText(/It has no preview/)).toBeTruthy();
});

test("where the preview does not answer, the page says so, and asks again", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const answers = [503, 503].map((status) => Response.json({ title: "The database does not answer", code: "database_unreachable" }, { status }));
  given({
    "GET /v1/templates": () => Response.json({ items: [{ name: "quickstart", about: "A first one.", text: QUICK }] }),
    "GET /v1/schema/job": () => Response.json(schema),
    "POST /v1/jobs/preview": () => answers.shift() ?? Response.json(preview),
  });
  open(<NewJobPage />, "/new");
  expect((await screen.findByRole("alert")).textContent).toContain("The database does not answer");
  for (let tries = 0; tries < 2; tries += 1) await vi.advanceTimersByTimeAsync(3000);
  vi.useRealTimers();
  expect(await screen.findByText("4 and 1 spare")).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});
