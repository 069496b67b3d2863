/** Help for a field of the job spec, from the spec's JSON Schema. This file names no field of a spec. */

import type { SchemaNode } from "../api/schema";

export interface Help {
  /** Dotted, from the spec's top. */
  field: string;
  about: string;
  /** Kind and limits: `whole number, at least 1`. */
  takes: string;
  /** As YAML would have it; null where there is none. */
  default: string | null;
  /** The values that the schema lists, as YAML would have them; none where any other is possible. */
  values: readonly string[];
  /** The keys below it. `nested`: its value is always a mapping. */
  keys: readonly { name: string; about: string; required: boolean; nested: boolean }[];
}

/** Null if the schema has no such field. A list's items are the path part `[]`. */
export function help(schema: SchemaNode, path: readonly string[]): Help | null {
  let node: SchemaNode | undefined = schema;
  for (const part of path) {
    node = step(schema, node, part);
    if (node === undefined) return null;
  }
  const forms = branches(schema, node);
  return {
    field: path.join(".").replaceAll(".[]", "[]"),
    about: node.description ?? forms.find((form) => form.description !== undefined)?.description ?? "",
    takes: [...new Set(forms.map(describe).filter((words) => words !== ""))].join(", or "),
    default: shown(node.default),
    values: [...new Set(forms.flatMap(values))],
    keys: forms.flatMap((form) => keys(schema, form)),
  };
}

/** Enumerations, constants and truth values. */
function values(form: SchemaNode): string[] {
  if (form.type === "boolean") return ["true", "false"];
  return (form.enum ?? (form.const === undefined ? [] : [form.const])).flatMap((value) => shown(value) ?? []);
}

function step(schema: SchemaNode, node: SchemaNode, part: string): SchemaNode | undefined {
  const found = branches(schema, node).map((form) => {
    if (part === "[]") return form.items;
    return form.properties?.[part] ?? (typeof form.additionalProperties === "object" ? form.additionalProperties : undefined);
  });
  return found.find((below) => below !== undefined);
}

/** The forms that a value may have, references followed; null is none of them. */
export function branches(schema: SchemaNode, node: SchemaNode): SchemaNode[] {
  if (node.$ref !== undefined) return branches(schema, schema.$defs?.[node.$ref.split("/").at(-1) ?? ""] ?? {});
  if (node.anyOf !== undefined) return node.anyOf.flatMap((form) => branches(schema, form));
  return node.type === "null" ? [] : [node];
}

function keys(schema: SchemaNode, form: SchemaNode): Help["keys"] {
  return Object.entries(form.properties ?? {}).map(([name, below]) => ({
    name,
    about: below.description ?? branches(schema, below)[0]?.description ?? "",
    required: form.required?.includes(name) ?? false,
    nested: isMapping(branches(schema, below)),
  }));
}

const isMapping = (forms: readonly SchemaNode[]) => forms.length > 0 && forms.every(({ type, properties }) => type === "object" || properties !== undefined);

const KINDS: Readonly<Record<string, string>> = {
  integer: "whole number",
  number: "number",
  string: "text",
  boolean: "true or false",
  array: "list",
  object: "keys and values",
};

function describe(form: SchemaNode): string {
  if (form.enum !== undefined) return form.enum.map(String).join(" | ");
  if (form.const !== undefined) return JSON.stringify(form.const);
  const limits = [
    limit("at least", form.minimum),
    limit("above", form.exclusiveMinimum),
    limit("at most", form.maximum),
    limit("below", form.exclusiveMaximum),
    form.pattern === undefined ? "" : `matching ${form.pattern}`,
  ];
  return [KINDS[form.type ?? ""] ?? "", ...limits].filter((part) => part !== "").join(", ");
}

const limit = (word: string, value: number | undefined) => (value === undefined ? "" : `${word} ${value}`);

function shown(value: unknown): string | null {
  if (value === undefined || (typeof value === "object" && value !== null)) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}
