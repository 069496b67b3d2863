import { expect, test } from "vitest";
import { csvRows } from "./csv-rows";

test.each([
  ["a,b\r\n1,2\r\n", [["a", "b"], ["1", "2"]]],
  ['"a, ""b""\r\nc",\r\n', [['a, "b"\r\nc', ""]]],
  ["a\nb", [["a"], ["b"]]],
  ["", []],
])("%j is its rows", (text, rows) => {
  expect(csvRows(text, 10, false)).toEqual(rows);
});

test("a text that was cut has no half rows, and no more rows than are shown", () => {
  expect(csvRows("a,b\r\n1,2\r\n3", 10, true)).toEqual([["a", "b"], ["1", "2"]]);
  expect(csvRows("a\r\n1\r\n2\r\n", 2, false)).toEqual([["a"], ["1"]]);
});
