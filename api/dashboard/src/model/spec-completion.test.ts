import { expect, test } from "vitest";
import type { SchemaNode } from "../api/schema";
import { complete } from "./spec-completion";

const SCHEMA: SchemaNode = {
  type: "object",
  required: ["name"],
  properties: {
    name: { type: "string", description: "Its name." },
    train: {
      type: "object",
      properties: {
        steps: { type: "integer" },
        layout: { type: "object", properties: { data: { anyOf: [{ type: "integer" }, { type: "object", properties: { min: { type: "integer" } } }] }, tensor: { type: "integer" } } },
        precision: { anyOf: [{ enum: ["auto", "fp32"], type: "string" }, { type: "null" }], default: "auto" },
        deterministic: { type: "boolean", default: false },
        parts: { type: "array", items: { type: "object", properties: { size: { type: "integer" } } } },
      },
    },
  },
};

/** What is suggested at the `|` of a text: each label, and what is written for it. */
function at(text: string) {
  const cursor = text.indexOf("|");
  const found = complete(SCHEMA, text.replace("|", ""), cursor);
  return found && { from: found.from, written: Object.fromEntries(found.suggestions.map(({ label, apply }) => [label, apply])) };
}

test("at the top the keys that are not there, with what they mean", () => {
  expect(complete(SCHEMA, "", 0)?.suggestions[0]).toEqual({ label: "name", apply: "name: ", kind: "key", detail: "required", about: "Its name." });
  expect(at("name: a\ntr|")).toEqual({ from: 8, written: { train: "train:\n  " } });
});

test("below a key the keys of its own, by the column of the cursor", () => {
  expect(at("train:\n  steps: 1\n  la|")?.written).toEqual({ layout: "layout:\n    ", precision: "precision: ", deterministic: "deterministic: ", parts: "parts: " });
  expect(at("train:\n  steps: 1\nna|")?.written).toEqual({ name: "name: " });
});

test("in braces the keys of the mapping, without a line of their own", () => {
  expect(at("train:\n  layout: { data: 1, te|")?.written).toEqual({ tensor: "tensor: " });
  expect(at("train: { | }")?.written.layout).toBe("layout: ");
  expect(at("train:\n  layout: { data: { |")?.written).toEqual({ min: "min: " });
});

test("a key that has a value keeps it", () => {
  expect(at("train:\n  st|ep: 3\n")).toEqual({ from: 9, written: { steps: "steps", layout: "layout", precision: "precision", deterministic: "deterministic", parts: "parts" } });
});

test("an item of a list has its keys", () => {
  expect(at("train:\n  parts:\n    - size: 1\n    - s|")?.written).toEqual({ size: "size: " });
});

test("after a colon the values that the schema lists", () => {
  expect(complete(SCHEMA, "train:\n  precision: ", 20)?.suggestions.map(({ label, detail }) => [label, detail])).toEqual([["auto", "default"], ["fp32", ""]]);
  expect(at("train:\n  deterministic: t|")?.written).toEqual({ true: "true", false: "false" });
  expect(at("train: { precision: f|")?.written).toEqual({ auto: "auto", fp32: "fp32" });
});

test.each(["# na|", "name: a # tr|", "name: |", "name: some wo|", "unknown:\n  a|"])("at %j there is nothing to suggest", (text) => { expect(at(text)).toBeNull(); });
