import { expect, test } from "vitest";
import type { SchemaNode } from "../api/schema";
import { withoutDefaults } from "./spec-defaults";

const SCHEMA: SchemaNode = {
  $defs: {
    Policy: {
      type: "object",
      properties: {
        spares: { type: "integer", default: 0 },
        straggler: { anyOf: [{ type: "object", properties: { factor: { type: "number", default: 1.5 } } }, { type: "null" }] },
      },
    },
  },
  type: "object",
  required: ["name", "train"],
  properties: {
    name: { type: "string", default: "x" },
    train: { type: "object", required: ["steps"], properties: { steps: { type: "integer" }, seed: { type: "integer", default: 0 }, files: { type: "array", items: { type: "string" } } } },
    labels: { type: "object", additionalProperties: { type: "string" } },
    recompute: { anyOf: [{ type: "object", properties: { mode: { type: "string" }, every: { type: "integer", default: 1 } } }, { type: "string" }], default: { mode: "none", every: 1 } },
    policy: { $ref: "#/$defs/Policy", default: { spares: 0, straggler: { factor: 1.5 } } },
    either: { anyOf: [{ type: "object", properties: { a: { type: "integer", default: 1 } } }, { type: "object", properties: { b: { type: "integer" } } }], default: null },
  },
};

const folded = (spec: unknown) => withoutDefaults(SCHEMA, spec);

test("defaults go, at any depth and whatever the order of the keys", () => {
  expect(folded({ name: "x", train: { steps: 3, seed: 0, files: [] }, labels: {}, recompute: { every: 1, mode: "none" }, policy: { straggler: { factor: 1.5 }, spares: 0 }, either: null }))
    .toEqual({ name: "x", train: { steps: 3 } });
});

test("what differs stays, with nothing beside it", () => {
  expect(folded({ name: "x", train: { steps: 3, seed: 1, files: ["a"] }, labels: { seed: "0" }, recompute: { mode: "full", every: 1 }, policy: { spares: 2, straggler: { factor: 1.5 } } }))
    .toEqual({ name: "x", train: { steps: 3, seed: 1, files: ["a"] }, labels: { seed: "0" }, recompute: { mode: "full" }, policy: { spares: 2 } });
});

test("null stays where it is not the default", () => {
  expect(folded({ train: { steps: 1 }, policy: { spares: 0, straggler: null } })).toEqual({ train: { steps: 1 }, policy: { straggler: null } });
});

test("keys that the schema does not know stay, and so do those of several forms", () => {
  expect(folded({ newer: {}, train: { steps: 1 }, either: { a: 1 } })).toEqual({ newer: {}, train: { steps: 1 }, either: { a: 1 } });
});
