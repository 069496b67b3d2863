import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { expectAccessible } from "../../testing/accessible";
import { given, lost, open } from "../../testing/control-plane";
import { checkpoint, operation } from "../../testing/history";
import { job } from "../../testing/jobs";
import { versionWire } from "../../testing/models";
import { JobCheckpoints } from "./job-checkpoints";

beforeEach(() => { vi.setSystemTime(1_795_000_060_000); });
afterEach(() => { vi.useRealTimers(); });

test("each checkpoint can be resumed from, or exported; earlier ones come on request", async () => {
  given({
    "GET /v1/jobs/job-1/checkpoints": ({ url }) =>
      url.searchParams.get("before") === "9" ? Response.json({ items: [checkpoint({ position: 4, step: 50 })], next: null }) : Response.json({ items: [checkpoint()], next: 9 }),
  });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  const resume = await screen.findByRole("link", { name: "Resume from here… step 100" });
  expect(resume.getAttribute("href")).toBe("/new?from=job-1&checkpoint=%2Fdata%2Fcheckpoints%2Fjob-1%2Fstep-00000100");
  expect(screen.getByText("1 min ago")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Earlier checkpoints" }));
  await screen.findByRole("link", { name: "Resume from here… step 50" });
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Export… step 100" }));
  const dialog = screen.getByRole("dialog", { name: "Export step 100 of llama-nano" });
  expect(within(dialog).getByText("shardyard export /data/checkpoints/job-1/step-00000100 ./exported")).toBeTruthy();
  await expectAccessible(dialog);
  await userEvent.click(within(dialog).getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("those of a program are verified and resumed from, but not exported", async () => {
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint()], next: null }) });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded", spec: { name: "a", command: ["python", "train.py"] } })} />);
  await screen.findByRole("button", { name: "Verify step 100" });
  expect(screen.getByRole("link", { name: "Resume from here… step 100" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: /Export/ })).toBeNull();
  await expectAccessible(container);
});

test("without checkpoints the page says how a program saves them", async () => {
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [], next: null }) });
  open(<JobCheckpoints job={job({ state: "running", spec: { name: "a", command: ["python", "train.py"] } })} />);
  expect(await screen.findByText(/shardyard\.checkpoint/)).toBeTruthy();
});

const CHECKPOINTS = { "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint()], next: null }) };

test("the cluster verifies one, and what it finds is shown when it is done", async () => {
  const found = { verdict: "corrupt", message: "it is corrupt", corrupt: ["rank-00001.safetensors"], corrupt_files: 3, files: 4, bytes: 100 };
  const pages = [[], [operation()], [operation({ state: "running" })], [operation({ state: "done", verified: found })]];
  let asked = 0;
  const requests = given({
    ...CHECKPOINTS,
    "GET /v1/jobs/job-1/operations": () => Response.json({ items: pages[asked === 0 ? 0 : Math.min(asked++, 3)], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/verify": () => {
      asked = 1;
      return Response.json(operation(), { status: 202 });
    },
  });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Verify step 100" }));
  expect(await screen.findByText("Verification is queued…")).toBeTruthy();
  expect(await screen.findByText("Verifying…")).toBeTruthy();
  expect(await screen.findByText("Corrupt: rank-00001.safetensors and 2 more")).toBeTruthy();
  expect(requests.find(({ method }) => method === "POST")?.headers.get("Idempotency-Key")).toMatch(/^page-verify-/);
  await expectAccessible(container);
});

test("an export has its dtype and shows its path; a refusal is shown in the dialog", async () => {
  const exported = { path: "/data/checkpoints/job-1/export-00000100-bf16", dtype: "bf16", files: 1, parameters: 12, bytes: 24_000_000, tokenizer_missing: null };
  let refused = true;
  const requests = given({
    ...CHECKPOINTS,
    "GET /v1/jobs/job-1/operations": () =>
      Response.json({ items: refused ? [] : [operation({ kind: "export", state: "done", dtype: "bf16", exported })], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/export": () => {
      if (!refused) return Response.json(operation({ kind: "export" }), { status: 202 });
      refused = false;
      return Response.json({ title: "The job exports this checkpoint itself", code: "export_underway" }, { status: 409 });
    },
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Export… step 100" }));
  await userEvent.selectOptions(screen.getByRole("combobox", { name: "Weights as" }), "bf16");
  await userEvent.click(screen.getByRole("button", { name: "Export" }));
  expect((await screen.findByRole("alert")).textContent).toContain("The job exports this checkpoint itself");
  await userEvent.click(screen.getByRole("button", { name: "Export" }));
  expect(await screen.findByText("/data/checkpoints/job-1/export-00000100-bf16")).toBeTruthy();
  expect(screen.queryByRole("dialog")).toBeNull();
  expect(requests.filter(({ method }) => method === "POST").map(({ url }) => url.search)).toEqual(["?dtype=bf16", "?dtype=bf16"]);
});

test("a failure has its reason and remedy; valid and deleted are shown", async () => {
  const error = { code: "storage_unreachable", message: "Nothing of /data can be seen.", remedy: "Mount it, then ask again." };
  const whole = { verdict: "valid", message: null, corrupt: [], corrupt_files: 0, files: 4, bytes: 100 };
  const other = "/data/checkpoints/job-1/step-00000050";
  given({
    "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint(), checkpoint({ position: 4, step: 50, path: other })], next: null }),
    "GET /v1/jobs/job-1/operations": () =>
      Response.json({
        items: [
          operation({ id: "op-4", kind: "export", state: "failed", error }),
          operation({ id: "op-3", state: "done", verified: whole }),
          operation({ id: "op-2", state: "done", verified: { ...whole, verdict: "corrupt" } }),
          operation({ id: "op-1", path: other, state: "done", verified: { ...whole, verdict: "deleted" } }),
        ],
        next: null,
      }),
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  expect(await screen.findByText("Could not export: Nothing of /data can be seen. Mount it, then ask again.")).toBeTruthy();
  expect(screen.getByText("Valid: 4 files match their checksums")).toBeTruthy();
  expect(screen.getByText("Deleted")).toBeTruthy();
  expect(screen.queryByText(/^Corrupt/)).toBeNull();
});

test("what is corrupt or deleted is shown so, and offers nothing", async () => {
  const states = ["present", "corrupt", "deleted"] as const;
  const items = states.map((state, i) => checkpoint({ position: 9 - i, step: 100 - i, state }));
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items, next: null }), "GET /v1/jobs/job-1/operations": () => Response.json({ items: [], next: null }) });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await screen.findByRole("link", { name: "Resume from here… step 100" });
  expect(screen.getAllByRole("link")).toHaveLength(1);
  expect(screen.getAllByRole("button").map(({ textContent }) => textContent)).toEqual(["Files step 100", "Pin step 100", "Name… step 100", "Verify step 100", "Export… step 100"]);
  for (const [i, state] of states.entries()) {
    expect(within(screen.getByRole("row", { name: new RegExp(`^${100 - i} `) })).getByRole("cell", { name: state })).toBeTruthy();
  }
  await expectAccessible(container);
});

test("what a verification finds is the state from then on", async () => {
  const found = { verdict: "corrupt", message: "it is corrupt", corrupt: ["rank-00001"], corrupt_files: 1, files: 4, bytes: 100 };
  let verified = false;
  given({
    "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint({ state: verified ? "corrupt" : "present" })], next: null }),
    "GET /v1/jobs/job-1/operations": () => Response.json({ items: verified ? [operation({ state: "done", verified: found })] : [], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/verify": () => {
      verified = true;
      return Response.json(operation(), { status: 202 });
    },
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Verify step 100" }));
  expect(await screen.findByRole("cell", { name: "corrupt" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Verify step 100" })).toBeNull();
});

test("none yet is said", async () => {
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [], next: null }) });
  open(<JobCheckpoints job={job()} />);
  expect(await screen.findByText(/^No checkpoints yet/)).toBeTruthy();
});

test("the files of one are listed with links, a page at a time", async () => {
  const file = { path: "a b/weights", bytes: 7, sha256: "0" };
  given({
    ...CHECKPOINTS,
    "GET /v1/jobs/job-1/checkpoints/100/files": ({ url }) =>
      url.searchParams.get("after") === null ? Response.json({ step: 100, digest: "d", items: [file], next: file.path }) : Response.json({ step: 100, digest: "d", items: [{ ...file, path: "z" }], next: null }),
  });
  const { container } = open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Files step 100" }));
  const link = await screen.findByRole("link", { name: "Download a b/weights" });
  expect(link.getAttribute("href")).toBe("/v1/jobs/job-1/checkpoints/100/files/a%20b/weights");
  await userEvent.click(screen.getByRole("button", { name: "More files" }));
  expect(await screen.findByRole("link", { name: "Download z" })).toBeTruthy();
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("button", { name: "Close" }));
  expect(screen.queryByRole("link", { name: "Download z" })).toBeNull();
});

test("storage that is slow is waited for as long as the control plane does, once", async () => {
  const limit = vi.spyOn(AbortSignal, "timeout");
  const requests = given({ ...CHECKPOINTS, "GET /v1/jobs/job-1/checkpoints/100/files": () => Response.json({ title: "Storage does not answer", code: "storage_unavailable" }, { status: 503 }) });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Files step 100" }));
  expect(await screen.findByText("Storage does not answer")).toBeTruthy();
  expect(requests.filter(({ url }) => url.pathname.endsWith("/files"))).toHaveLength(1);
  expect(Math.max(...limit.mock.calls.map(([ms]) => ms))).toBeGreaterThan(150_000);
});

test("the files are asked for once more where the connection to the control plane is lost", async () => {
  let reached = false;
  const requests = given({
    ...CHECKPOINTS,
    "GET /v1/jobs/job-1/checkpoints/100/files": () => {
      if (!reached) return lost();
      return Response.json({ step: 100, digest: "d", items: [{ path: "weights", bytes: 7, sha256: "0" }], next: null });
    },
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  const button = await screen.findByRole("button", { name: "Files step 100" });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"], shouldAdvanceTime: true });
  fireEvent.click(button);
  await waitFor(() => { expect(requests.filter(({ url }) => url.pathname.endsWith("/files"))).toHaveLength(1); });
  reached = true;
  await vi.advanceTimersByTimeAsync(1000);
  expect(await screen.findByRole("link", { name: "Download weights" })).toBeTruthy();
});

/** As long as the interval of a reading that failed, and its retry. */
const later = async () => { for (let seconds = 0; seconds < 6; seconds += 1) await vi.advanceTimersByTimeAsync(1000); };

test.each(["checkpoints", "operations"])("the %s of a job that has ended are read again until the control plane is back", async (name) => {
  vi.useFakeTimers({ shouldAdvanceTime: true, now: 1_795_000_060_000 });
  let back = false;
  const items = { checkpoints: [checkpoint()], operations: [operation({ kind: "pin", state: "failed", error: { code: "storage_unreachable", message: "No answer.", remedy: "Ask again." } })] };
  const of = (about: keyof typeof items) => () => (!back && about === name ? lost() : Response.json({ items: items[about], next: null }));
  const requests = given({ "GET /v1/jobs/job-1/checkpoints": of("checkpoints"), "GET /v1/jobs/job-1/operations": of("operations") });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  const asked = () => requests.filter(({ url }) => url.pathname.endsWith(`/${name}`)).length;
  await later();
  await later();
  expect(asked()).toBeGreaterThan(3);
  back = true;
  await later();
  expect(await screen.findByText(/Could not pin: No answer/)).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
  const read = asked();
  await later();
  expect(asked()).toBe(read);
});

test("files are read again while the control plane is away, and not after an answer of slow storage", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true, now: 1_795_000_060_000 });
  let answers = lost;
  const requests = given({ ...CHECKPOINTS, "GET /v1/jobs/job-1/checkpoints/100/files": () => answers() });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  fireEvent.click(await screen.findByRole("button", { name: "Files step 100" }));
  const asked = () => requests.filter(({ url }) => url.pathname.endsWith("/files")).length;
  await later();
  await later();
  expect(asked()).toBeGreaterThan(3);
  answers = () => Response.json({ title: "Storage does not answer", code: "storage_unavailable" }, { status: 503 });
  await later();
  expect(screen.getByText("Storage does not answer")).toBeTruthy();
  const read = asked();
  await later();
  expect(asked()).toBe(read);
});

test("one is pinned, and named as a version of a model", async () => {
  const requests = given({
    ...CHECKPOINTS,
    "GET /v1/jobs/job-1/operations": () => Response.json({ items: [operation({ kind: "pin", state: "running" })], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/pin": () => Response.json(operation({ kind: "pin" }), { status: 202 }),
    "POST /v1/models/my-model/versions": () => Response.json(versionWire({ model: "my-model", number: 3 }), { status: 201 }),
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Pin step 100" }));
  expect(await screen.findByText("Pinning…")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Name… step 100" }));
  const dialog = screen.getByRole("dialog");
  const name = within(dialog).getByRole("textbox", { name: "Model" });
  await userEvent.clear(name);
  await userEvent.type(name, "My model");
  expect(within(dialog).getByText("Use lower-case letters, digits and dashes.")).toBeTruthy();
  await userEvent.clear(name);
  await userEvent.type(name, "my-model");
  await userEvent.click(within(dialog).getByRole("button", { name: "Create the version" }));
  expect(await within(dialog).findByRole("link", { name: "my-model" })).toBeTruthy();
  const sent = requests.find(({ method, url }) => method === "POST" && url.pathname.startsWith("/v1/models"));
  expect(JSON.parse(sent?.body ?? "")).toEqual({ job: "job-1", step: 100, notes: "" });
  await expectAccessible(dialog);
});

test("what a model names cannot be unpinned here, and is linked", async () => {
  given({ "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint({ pinned: true, models: ["nano@3"] })], next: null }) });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  expect((await screen.findByRole("link", { name: "nano@3" })).getAttribute("href")).toBe("/models/nano");
  expect(screen.queryByRole("button", { name: /[Pp]in/ })).toBeNull();
});

test("a corrupt one can be unpinned, to make room", async () => {
  const requests = given({
    "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint({ state: "corrupt", pinned: true })], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/unpin": () => Response.json(operation({ kind: "unpin" }), { status: 202 }),
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  await userEvent.click(await screen.findByRole("button", { name: "Unpin step 100" }));
  expect(screen.getAllByRole("button")).toHaveLength(1);
  expect(requests.some(({ method }) => method === "POST")).toBe(true);
});

test("what a model names can be pinned again, if its pin failed", async () => {
  const failed = operation({ kind: "pin", state: "failed", error: { code: "storage_unreachable", message: "No answer.", remedy: "Ask again." } });
  const requests = given({
    "GET /v1/jobs/job-1/checkpoints": () => Response.json({ items: [checkpoint({ models: ["nano@3"] })], next: null }),
    "GET /v1/jobs/job-1/operations": () => Response.json({ items: [failed], next: null }),
    "POST /v1/jobs/job-1/checkpoints/9/pin": () => Response.json(operation({ kind: "pin" }), { status: 202 }),
  });
  open(<JobCheckpoints job={job({ state: "succeeded" })} />);
  expect(await screen.findByText(/Could not pin: No answer/)).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Pin step 100" }));
  expect(requests.some(({ method }) => method === "POST")).toBe(true);
});
