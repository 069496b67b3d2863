import { expect, test } from "vitest";
import type { SchemaNode } from "../api/schema";
import { help } from "./schema";

const SCHEMA: SchemaNode = {
  $defs: {
    Train: {
      type: "object",
      description: "What to train.",
      required: ["steps"],
      properties: {
        steps: { type: "integer", minimum: 1, maximum: 10 },
        data: { anyOf: [{ type: "integer", minimum: 1 }, { type: "object", properties: { min: { type: "integer", description: "The fewest." } } }], default: 1, description: "Replicas." },
        schedule: { enum: ["gpipe", "1f1b"], default: "1f1b" },
        lr: { anyOf: [{ type: "number", exclusiveMinimum: 0 }, { type: "null" }], default: null },
        files: { type: "array", items: { type: "string" } },
      },
    },
  },
  type: "object",
  required: ["train"],
  properties: { train: { $ref: "#/$defs/Train" }, labels: { type: "object", additionalProperties: { type: "string", pattern: "^a" } } },
};

test("a number has its limits", () => {
  expect(help(SCHEMA, ["train", "steps"])).toEqual({ field: "train.steps", about: "", takes: "whole number, at least 1, at most 10", default: null, values: [], keys: [] });
});

test("a mapping has its keys, with those that are required", () => {
  expect(help(SCHEMA, [])?.keys).toEqual([
    { name: "train", about: "What to train.", required: true, nested: true },
    { name: "labels", about: "", required: false, nested: true },
  ]);
  expect(help(SCHEMA, ["train"])?.about).toBe("What to train.");
});

test("forms of a value are alternatives, and each leads on", () => {
  expect(help(SCHEMA, ["train", "data"])).toMatchObject({ about: "Replicas.", takes: "whole number, at least 1, or keys and values", default: "1" });
  expect(help(SCHEMA, ["train", "data", "min"])?.about).toBe("The fewest.");
});

test.each([
  [["train", "schedule"], "gpipe | 1f1b"],
  [["train", "lr"], "number, above 0"],
  [["train", "files", "[]"], "text"],
  [["labels", "team"], "text, matching ^a"],
])("%s takes %s", (path, takes) => { expect(help(SCHEMA, path)?.takes).toBe(takes); });

test("what is unknown is said to be", () => {
  expect(help(SCHEMA, ["train", "stepz"])).toBeNull();
  expect(help(SCHEMA, ["train", "steps", "deeper"])).toBeNull();
});
