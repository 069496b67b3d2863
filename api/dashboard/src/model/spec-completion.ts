/** What can be written at a place of a spec, by the spec's JSON Schema: keys that are not there yet, or the values of a key. */

import type { SchemaNode } from "../api/schema";
import { help } from "./schema";
import { keysOf, pathAt } from "./spec-keys";

export interface Suggestion {
  label: string;
  /** The text that takes the place of what is written. */
  apply: string;
  kind: "key" | "value";
  /** A few words: `required`, `default`. */
  detail: string;
  about: string;
}

export interface Completion {
  /** Where the word begins that the suggestions take the place of. */
  from: number;
  suggestions: readonly Suggestion[];
}

const WORD_BEFORE = /[\w-]*$/;
const WORD_AFTER = /^[\w-]*/;

/** Null where the schema knows nothing that fits at `cursor`. */
export function complete(schema: SchemaNode, text: string, cursor: number): Completion | null {
  const begin = text.lastIndexOf("\n", cursor - 1) + 1;
  const before = text.slice(begin, cursor);
  if (/(^|\s)#/.test(before)) return null;
  const from = cursor - (WORD_BEFORE.exec(before)?.[0].length ?? 0);
  const after = text.slice(cursor).replace(WORD_AFTER, "");
  const suggestions = keysAt(schema, text, from, after) ?? valuesAt(schema, text, from);
  return suggestions.length === 0 ? null : { from, suggestions };
}

/** Null where no key can stand. A key is put there, and the place that it gets is the place of the others. */
function keysAt(schema: SchemaNode, text: string, from: number, after: string): Suggestion[] | null {
  const found = keysOf(`${text.slice(0, from)}x: 0${after}`).find(({ at }) => at === from);
  if (found === undefined) return null;
  const parent = found.path.slice(0, -1);
  const there = parent.includes("[]") ? new Set<string>() : siblings(text, parent, from);
  const flow = found.indents.length < found.path.length;
  const indent = " ".repeat(from - text.lastIndexOf("\n", from - 1) - 1 + 2);
  return (help(schema, parent)?.keys ?? []).filter(({ name }) => !there.has(name)).map(({ name, about, required, nested }) => {
    const value = /^ *:/.test(after) ? "" : nested && !flow ? `:\n${indent}` : ": ";
    return { label: name, apply: name + value, kind: "key", detail: required ? "required" : "", about };
  });
}

/** Names of the keys below `parent`, without the one at `from`. */
const siblings = (text: string, parent: readonly string[], from: number) =>
  new Set(keysOf(text).flatMap(({ path, at }) => (at !== from && path.length === parent.length + 1 && parent.every((part, index) => path[index] === part) ? (path.at(-1) ?? []) : [])));

function valuesAt(schema: SchemaNode, text: string, from: number): Suggestion[] {
  if (!/: +$/.test(text.slice(0, from))) return [];
  const found = help(schema, pathAt(text, from));
  return (found?.values ?? []).map((value) => ({ label: value, apply: value, kind: "value", detail: value === found?.default ? "default" : "", about: "" }));
}
