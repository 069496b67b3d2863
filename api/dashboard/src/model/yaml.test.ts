import { expect, test } from "vitest";
import { parse } from "yaml";
import { toYaml } from "./yaml";

const SPEC = {
  name: "llama-nano",
  train: {
    data: { source: "text", files: ["a b/*.txt", "/data/x.jsonl"], field: null },
    model: { import: "module:factory", args: { sizes: [1, 2.5, -3e-9], nested: [{ a: 1, b: [] }, [1, [2]], {}] } },
    optimizer: { lr: 0.003, eps: 1e-8 },
    final: false,
  },
  labels: {},
};

test("a spec reads as people write it", () => {
  expect(toYaml({ name: "a", train: { files: ["x.txt"], steps: 3, resume_from: null } })).toBe(
    "name: a\ntrain:\n  files:\n    - x.txt\n  steps: 3\n  resume_from: null\n",
  );
});

test.each(["core", "yaml-1.1"] as const)("a spec reads back equal (%s)", (schema) => {
  expect(parse(toYaml(SPEC), { schema })).toEqual(SPEC);
});

const TRICKY = [
  "", " ", "no", "Yes", "null", "~", "1e3", "0x10", "1_000", "12:30:00", "2026-01-01", ".5", "-", "- a", "a: b", "a #b", "#a", "'", '"',
  "a\nb", "\t", "é", "日本", "{a}", "[a]", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a", "trailing ", "key:", "=", "<<", ".inf", "y", "n",
  "step-0001", "/data/a-b.c", "v1.2.3", "a,b", "module:factory", "a:b:c", "s3://x/y", "a:#b", "_", "...", "---", ".",
  ".5e-3", ".5E+5", "._5", ".5_0", ".e-3", "../data", ".env",
];

test.each(["core", "yaml-1.1"] as const)("text stays text, whatever it looks like (%s)", (schema) => {
  for (const text of TRICKY) {
    const value = { [text]: text, list: [text] };
    expect(parse(toYaml(value), { schema }), JSON.stringify(text)).toEqual(value);
  }
});
