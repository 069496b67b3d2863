import { expect, test } from "vitest";
import { parseDocument, isMap, isSeq, type Node } from "yaml";
import { isSweep, keyOf, keysOf, pathAt } from "./spec-keys";

const SPEC = `# A comment with key: value
name: quickstart
train:
  model: { family: llama, preset: nano } # and: this
  data:
    source: text
    files: ["a: b.txt", 'c, d: e']
  layout: { data: { min: 1, max: 4 },
            tensor: 2 }
  stages:
    - name: one
      size: 1
    - name: two
      more: [1, { deep: 2 }]
  flat:
  - first: 1
    second: 2
labels: { "team": demo, a/b: c }
`;

/** Every key of the text by a real YAML reader: its dotted path and its place. */
function real(node: unknown, path: readonly string[]): [string, number][] {
  if (isMap(node)) {
    return node.items.flatMap((pair) => {
      const key = pair.key as Node & { value: string };
      const below = [...path, key.value];
      return [[below.join("."), key.range?.[0] ?? -1] as [string, number], ...real(pair.value, below)];
    });
  }
  return isSeq(node) ? node.items.flatMap((item) => real(item, [...path, "[]"])) : [];
}

test("every key is found where a YAML reader finds it", () => {
  const found = keysOf(SPEC).map((key): [string, number] => [key.path.join("."), key.at]);
  expect(found).toEqual(real(parseDocument(SPEC).contents, []));
});

test.each([
  ["na|me: quickstart", "name"],
  ["family: ll|ama", "train.model.family"],
  ["preset: na|no", "train.model.preset"],
  ["ma|x: 4", "train.layout.data.max"],
  ["tensor: |2", "train.layout.tensor"],
  ["more: [1, { deep|: 2", "train.stages.[].more.[].deep"],
  ["second: |2", "train.flat.[].second"],
])("the cursor in %s is in %s", (part, path) => {
  const at = SPEC.indexOf(part.replace("|", "")) + part.indexOf("|");
  expect(pathAt(SPEC, at).join(".")).toBe(path);
});

test("an empty line belongs to what its indentation is below of", () => {
  const text = "name: a\ntrain:\n  data:\n    source: text\n    \n  \n\n";
  const end = (lines: number) => text.split("\n").slice(0, lines).join("\n").length;
  expect(pathAt(text, end(5)).join(".")).toBe("train.data");
  expect(pathAt(text, end(6)).join(".")).toBe("train");
  expect(pathAt(text, end(7)).join(".")).toBe("");
  expect(pathAt("", 0)).toEqual([]);
});

test.each([
  ["train.layout.tensor", 9],
  ["train.data.files[0]", 7],
  ["train.optimizer.lr", 3],
  ["labels.team", 18],
  ["nothing", null],
  ["", null],
])("an error of %s leads to line %s", (field, line) => {
  expect(keyOf(SPEC, field)?.line ?? null).toBe(line);
});

test.each(["a: {b: [", "a:\n  - {", 'a: "b', "}}]]", "a: 'it''s': b", "- - - a: 1", "\t\ta: 1", "a: {\n\n# c: {\n  b: 1"])("half a spec (%j) is no reason to stop", (text) => {
  for (let at = 0; at <= text.length; at += 1) expect(pathAt(text, at)).toBeInstanceOf(Array);
});

test("a text is a sweep by its own key, in YAML and in JSON", () => {
  expect(["name: a\nsweep:\n  trials: 3\n", "sweep: {trials: 3}", '{"name": "a", "sweep": {"trials": 3}}'].map(isSweep)).toEqual([true, true, true]);
  expect(["name: sweep\n", "labels: {sweep: a}\n", "labels:\n  sweep: a\n", "# sweep: a\n", ""].map(isSweep)).toEqual([false, false, false, false, false]);
});
