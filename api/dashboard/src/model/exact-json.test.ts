import { expect, test } from "vitest";
import { exactJson } from "./exact-json";

test("only whole numbers that would be rounded are bigints", async () => {
  const text = '{"seed":9223372036854775807,"low":-9007199254740993,"safe":9007199254740991,"lr":1e-05,"big":1e+300,"list":[1,-0,0.5,null,true]}';
  expect(await exactJson(text)).toEqual({ seed: 9223372036854775807n, low: -9007199254740993n, safe: 9007199254740991, lr: 1e-5, big: 1e300, list: [1, 0, 0.5, null, true] });
});

test.each(["a: b # c", 'quote " \\ / \n\t\u0000 \u2028', "ü 😀", "yes", "9223372036854775807", "", "- [x]", " {y} ", "x".repeat(2000)])("text stays text: %j", async (text) => {
  const value = { [text]: [text, { inner: text }] };
  expect(await exactJson(JSON.stringify(value))).toEqual(value);
});
