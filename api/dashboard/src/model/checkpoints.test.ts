import { expect, test } from "vitest";
import { job } from "../testing/jobs";
import { childAddress } from "./addresses";
import { childSpec, exportCommand } from "./checkpoints";

const parent = job({ spec: { name: "llama", labels: { team: "research" }, train: { steps: 600, layout: { data: 2 } }, policy: { spares: 1 } } });

test("a child has its parent's spec, the checkpoint and the parent's id", () => {
  expect(childSpec(parent, "/c/job-1/step-00000100", null)).toEqual({
    name: "llama-resumed",
    labels: { team: "research", parent: "job-1" },
    train: { steps: 600, layout: { data: 2 }, resume_from: "/c/job-1/step-00000100" },
    policy: { spares: 1 },
  });
});

test.each([null, "/c/job-1/step-00000100"])("a layout that was chosen for its parent is the user's own (from %s)", (checkpoint) => {
  const layout = { data: 8, auto: { world: 8, devices: "8 × H100", step_s: 0.5 } };
  const chosen = job({ spec: { name: "a", train: { steps: 600, layout } } });
  expect(childSpec(chosen, checkpoint, null)).toHaveProperty("train.layout", { data: 8 });
});

test("after the last step there is as much to do again", () => {
  expect(childSpec(parent, "/c/job-1/step-00000600", null)).toMatchObject({ train: { steps: 1200 } });
});

test("a fork of a job that began at the first step does so, and its name is never too long", () => {
  const long = job({ spec: { name: "a".repeat(63), train: { steps: 5, resume_from: null } } });
  expect(childSpec(long, null, null)).toMatchObject({ name: `${"a".repeat(58)}-fork`, train: { steps: 5, resume_from: null } });
});

test.each([
  ["other", "/c/job-2/step-00000003", "/c/job-2/step-00000003"],
  ["models/nano@3", "/c/job-2/step-00000003", "models/nano@3"],
  ["other", null, "other"],
])("a fork of a job that resumed %s begins there, too", (resume_from, began, expected) => {
  const restarted = { steps: 5, resume_from, resume_data: "restart" };
  const training = job({ spec: { name: "a", train: restarted } });
  expect(childSpec(training, null, began)).toMatchObject({ train: { ...restarted, resume_from: expected } });
  const program = job({ spec: { name: "a", command: ["python", "train.py"], resume_from } });
  expect(childSpec(program, null, began)).toMatchObject({ command: ["python", "train.py"], name: "a-fork", resume_from: expected });
});

test("one that resumes from a job that restarted its data does not restart them", () => {
  const restarted = job({ spec: { name: "a", train: { steps: 5, resume_from: "other", resume_data: "restart" } } });
  const child = childSpec(restarted, "/c/job-1/step-00000003", "/c/job-2/step-00000001");
  expect(child).toMatchObject({ train: { steps: 5, resume_from: "/c/job-1/step-00000003" } });
  expect(JSON.stringify(child)).not.toContain("resume_data");
});

test("a program continues from the checkpoint", () => {
  const program = job({ spec: { name: "a", command: ["python", "train.py"], checkpoint: { keep: 3 }, resume_from: "other" } });
  const child = childSpec(program, "/c/job-1/step-00000003", "/c/job-2/step-00000001");
  expect(child).toMatchObject({ checkpoint: { keep: 3 }, resume_from: "/c/job-1/step-00000003" });
});

test.each([null, "/c/job-1/step-00000003"])("a child of a trial is no job of its sweep (from %s)", (checkpoint) => {
  const labels = { team: "research", "shardyard/sweep": "sweep-1", "shardyard/trial": "3" };
  const trial = job({ spec: { name: "a", labels, train: { steps: 5 } } });
  expect(childSpec(trial, checkpoint, null)).toHaveProperty("labels", { team: "research", parent: "job-1" });
});

test("the parent is named where 64 labels leave room for it", () => {
  const labelsOf = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`l${n}`, "x"]));
  const child = (labels: object) => childSpec(job({ spec: { name: "a", labels, train: { steps: 5 } } }), null, null) as { labels: object };
  expect(child(labelsOf(63)).labels).toEqual({ ...labelsOf(63), parent: "job-1" });
  expect(child(labelsOf(64)).labels).toEqual(labelsOf(64));
  expect(child({ ...labelsOf(63), parent: "job-0" }).labels).toEqual({ ...labelsOf(63), parent: "job-1" });
});

test("addresses and commands keep odd paths whole", () => {
  expect(childAddress("job-1", "s3://b/x y")).toBe("/new?from=job-1&checkpoint=s3%3A%2F%2Fb%2Fx+y");
  expect(exportCommand("/c/step-1")).toBe("shardyard export /c/step-1 ./exported");
  expect(exportCommand("/it's here")).toBe("shardyard export '/it'\\''s here' ./exported");
});
