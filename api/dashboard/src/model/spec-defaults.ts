/** A stored spec without the values that its schema would fill in again. A stored spec has every default written out. */

import type { SchemaNode } from "../api/schema";
import { branches } from "./schema";

type Mapping = Readonly<Record<string, unknown>>;

const isMapping = (value: unknown): value is Mapping => typeof value === "object" && value !== null && !Array.isArray(value);

/** The control plane reads the same spec from it. */
export const withoutDefaults = (schema: SchemaNode, spec: unknown): unknown => folded(schema, schema, spec);

function folded(schema: SchemaNode, node: SchemaNode, value: unknown): unknown {
  const forms = branches(schema, node).filter(({ properties }) => properties !== undefined);
  const [form] = forms;
  // Of two forms with keys, each may have defaults of its own.
  if (!isMapping(value) || form === undefined || forms.length > 1) return value;
  return Object.fromEntries(Object.entries(value).flatMap(([key, item]) => kept(schema, form, key, item)));
}

function kept(schema: SchemaNode, form: SchemaNode, key: string, item: unknown): [string, unknown][] {
  const node = form.properties?.[key];
  if (node === undefined || (form.required?.includes(key) ?? false)) return [[key, node === undefined ? item : folded(schema, node, item)]];
  if ("default" in node && same(node.default, item)) return [];
  const below = folded(schema, node, item);
  // Without a default in the schema, what is left out is empty, or a part with the defaults of its own keys.
  return !("default" in node) && isEmpty(below) ? [] : [[key, below]];
}

const isEmpty = (value: unknown) => (Array.isArray(value) ? value.length === 0 : isMapping(value) && Object.keys(value).length === 0);

/** JSON values, whatever the order of their keys. */
function same(one: unknown, other: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(other)) return one.length === other.length && one.every((item, at) => same(item, other[at]));
  if (!isMapping(one) || !isMapping(other)) return one === other;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => key in other && same(one[key], other[key]));
}
