import { expect, test } from "vitest";
import type { SubmittedSpec } from "../api/submitted-spec";
import { childText } from "./child-text";

const TEXT = `# Why: the baseline of June.
name: nano # short

train:
  data: { source: text, files: [ "a.txt" ] } # all of it
  # until noon
  steps: 600
  seed: 9007199254740993
  optimizer:
    lr: 3e-4
  resume_from: other # where it began
  resume_data: restart
labels:
  team: a # ours
`;

const given = (text: string, more: Partial<SubmittedSpec> = {}): SubmittedSpec => ({ format: "yaml", text, layoutChanged: false, ...more });
const PARENT = { name: "nano", labels: { team: "a" }, train: { steps: 600, resume_from: "other", resume_data: "restart" } };
const child = (train: object, labels: object = { team: "a", parent: "job-1" }) => ({ parent: PARENT, child: { name: "nano-fork", labels, train }, layout: { data: 4 } });

test("a fork changes only what is its own, and names the checkpoint with which its parent began", async () => {
  const text = await childText(given(TEXT), child({ ...PARENT.train, resume_from: "/c/step-00000003" }));
  expect(text).toBe(
    TEXT.replace("name: nano #", "name: nano-fork #")
      .replace("resume_from: other #", "resume_from: /c/step-00000003 #")
      .replace("team: a # ours\n", "team: a # ours\n  parent: job-1\n"),
  );
});

test("a version that an alias named has its number, and what is a default is not written", async () => {
  const train = { steps: 600, resume_from: "models/nano@3", resume_data: "continue" };
  const of = { parent: { ...PARENT, train }, child: { name: "nano-fork", labels: {}, train }, layout: {} };
  expect(await childText(given("name: nano\ntrain:\n  resume_from: models/nano@best # ours\n"), of)).toBe(
    "name: nano-fork\ntrain:\n  resume_from: models/nano@3 # ours\nlabels: {}\n",
  );
});

test("labels that the child does not have go", async () => {
  const text = "name: nano\ntrain: {}\nlabels:\n  shardyard/sweep: sweep-1\n  team: a # ours\n";
  const changed = await childText(given(text), child({ steps: 600 }));
  expect(changed).toBe("name: nano-fork\ntrain: {}\nlabels:\n  team: a # ours\n  parent: job-1\n");
});

test("one that resumes names the checkpoint, and has more steps if there are none left", async () => {
  const text = await childText(given(TEXT), child({ steps: 1200, resume_from: "/c/step-00000600" }));
  expect(text).toContain("  # until noon\n  steps: 1200\n");
  expect(text).toContain("resume_from: /c/step-00000600 # where it began\n");
  expect(text).not.toContain("resume_data");
});

test("the layout is that of the job, where it was changed since", async () => {
  expect(await childText(given(TEXT, { layoutChanged: true }), child({ steps: 600 }))).toContain("  layout:\n    data: 4\n");
});

test("so is that which was chosen for it, with what was chosen beside it", async () => {
  const made = { ...child({ steps: 600 }), options: { recompute: { mode: "full" } } };
  const text = await childText(given("name: nano\ntrain:\n  layout: auto # the fastest\n", { layoutChanged: true }), made);
  expect(text).toContain("  layout:");
  expect(text).toContain("    data: 4\n  recompute:\n    mode: full\n");
  expect(text).not.toContain("auto");
});

test("steps that were left out stay so, and a job without a training gets none", async () => {
  expect(await childText(given("name: nano\ntrain: {}\n"), child({ steps: 600 }, { parent: "job-1" }))).toBe("name: nano-fork\ntrain: {}\nlabels:\n  parent: job-1\n");
  const program = { parent: { name: "nano" }, child: { name: "nano-resumed", labels: {}, resume_from: "/c/1" }, layout: {} };
  expect(await childText(given("name: nano # a\ncommand: [ python, a.py ]\n"), program)).toBe("name: nano-resumed # a\ncommand: [ python, a.py ]\nlabels: {}\nresume_from: /c/1\n");
});

test("a text in JSON becomes YAML", async () => {
  const json = '{"name": "nano", "train": {\n\t"steps": 600,\n\t"seed": 9007199254740993, "note": "\\ud83d\\ude80\\/"}}';
  const text = await childText(given(json, { format: "json" }), child({ steps: 600 }));
  expect(text).toBe("name: nano-fork\ntrain:\n  steps: 600\n  seed: 9007199254740993\n  note: 🚀/\nlabels:\n  team: a\n  parent: job-1\n");
});

test.each(["a: [", "- a", "text"])("a text that is no spec is not changed (%s)", async (text) => {
  expect(await childText(given(text), child({ steps: 600 }))).toBe(null);
});
