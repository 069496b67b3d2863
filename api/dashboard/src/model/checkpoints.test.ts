import { expect, test } from "vitest";
import { job } from "../testing/jobs";
import { childAddress } from "./addresses";
import { childSpec, exportCommand } from "./checkpoints";

const parent = job({ spec: { name: "llama", labels: { team: "research" }, train: { steps: 600, layout: { data: 2 } }, policy: { spares: 1 } } });

test("a child has its parent's spec, the checkpoint and the parent's id", () => {
  expect(childSpec(parent, "/c/job-1/step-00000100")).toEqual({
    name: "llama-resumed",
    labels: { team: "research", parent: "job-1" },
    train: { steps: 600, layout: { data: 2 }, resume_from: "/c/job-1/step-00000100" },
    policy: { spares: 1 },
  });
});

test("after the last step there is as much to do again", () => {
  expect(childSpec(parent, "/c/job-1/step-00000600")).toMatchObject({ train: { steps: 1200 } });
});

test("a fork begins at the first step, whatever its parent resumed, and its name is never too long", () => {
  const long = job({ spec: { name: "a".repeat(63), train: { steps: 5, resume_from: "other" } } });
  expect(childSpec(long, null)).toMatchObject({ name: `${"a".repeat(58)}-fork`, train: { steps: 5, resume_from: null } });
});

test.each([null, "/c/job-2/step-00000003"])("a child of a job that restarted its data does not (from %s)", (checkpoint) => {
  const restarted = job({ spec: { name: "a", train: { steps: 5, resume_from: "other", resume_data: "restart" } } });
  expect(childSpec(restarted, checkpoint)).toMatchObject({ train: { steps: 5, resume_from: checkpoint } });
  expect(JSON.stringify(childSpec(restarted, checkpoint))).not.toContain("resume_data");
});

test("a program continues from the checkpoint, and a fork of it from none", () => {
  const program = job({ spec: { name: "a", command: ["python", "train.py"], checkpoint: { keep: 3 }, resume_from: "other" } });
  expect(childSpec(program, "/c/job-1/step-00000003")).toMatchObject({ checkpoint: { keep: 3 }, resume_from: "/c/job-1/step-00000003" });
  expect(childSpec(program, null)).toMatchObject({ name: "a-fork", resume_from: null });
});

test("addresses and commands keep odd paths whole", () => {
  expect(childAddress("job-1", "s3://b/x y")).toBe("/new?from=job-1&checkpoint=s3%3A%2F%2Fb%2Fx+y");
  expect(exportCommand("/c/step-1")).toBe("shardyard export /c/step-1 ./exported");
  expect(exportCommand("/it's here")).toBe("shardyard export '/it'\\''s here' ./exported");
});
