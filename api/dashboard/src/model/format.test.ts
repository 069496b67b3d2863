import { expect, test } from "vitest";
import { ago, bytes, duration, exactDuration, integer, loss, moment, period, precisionOf, short, shortTick } from "./format";

test.each([
  [null, "–"], [5.55312, "5.5531"], [123.456, "123.5"], [0.00001234, "1.23e-5"], [0, "0.0000"], [2e6, "2.00e+6"], [NaN, "–"],
])("loss %s is %s", (value, text) => { expect(loss(value)).toBe(text); });

test.each([[0, "0"], [7, "7"], [7.25, "7.3"], [999, "999"], [14_230, "14.2k"], [7e9, "7.0B"], [124e6, "124M"], [null, "–"]])(
  "%s is %s in short",
  (value, text) => { expect(short(value)).toBe(text); },
);

test.each([[0, "0 B"], [1023, "1023 B"], [14_600_000, "13.9 MiB"], [2 ** 40, "1.0 TiB"], [null, "–"]])("%s bytes are %s", (value, text) => {
  expect(bytes(value)).toBe(text);
});

test.each([
  [0.42, "0.42 s"], [8.31, "8.3 s"], [59.7, "1 min 00 s"], [250, "4 min 10 s"], [11_100, "3 h 05 min"], [187_200, "2 d 4 h"], [null, "–"],
])("%s seconds are %s", (value, text) => { expect(duration(value)).toBe(text); });

test.each([
  [[1.3e9, 1.32e9, 1.34e9], 2e7, ["1.30B", "1.32B", "1.34B"]],
  [[100.2e6, 100.4e6], 2e5, ["100.2M", "100.4M"]],
  [[9.5e8, 9.75e8, 1e9], 2.5e7, ["950M", "975M", "1.000B"]],
  [[0, 500, 1000], 500, ["0", "500", "1.0k"]],
  [[1e9 + 1, 1e9 + 2], 1, ["1.000000001B", "1.000000002B"]],
  [[0, 2e9], 2e9, ["0", "2B"]],
])("ticks at %s have the digits that their increment %s needs", (ticks, increment, texts) => { expect(ticks.map((tick) => shortTick(tick, increment))).toEqual(texts); });

test.each([
  [[187_200, 187_800], 600, ["2 d 4 h 00 min", "2 d 4 h 10 min"]],
  [[187_200, 187_230], 30, ["2 d 4 h 00 min 00 s", "2 d 4 h 00 min 30 s"]],
  [[0, 43_200, 86_400], 43_200, ["0 s", "12 h", "1 d 0 h"]],
  [[86_400, 172_800], 86_400, ["1 d", "2 d"]],
  [[0, 5, 10], 5, ["0 s", "5 s", "10 s"]],
])("ticks at %s seconds have the units that their increment %s needs", (ticks, increment, texts) => { expect(ticks.map((tick) => exactDuration(tick, increment))).toEqual(texts); });

test.each([[187_261.2, "2 d 4 h 01 min 01 s"], [3.27, "3.3 s"], [3661, "1 h 01 min 01 s"], [null, "–"]])("exactly %s seconds are %s", (value, text) => { expect(exactDuration(value)).toBe(text); });

test("integers are grouped", () => { expect(integer(1_234_567.4)).toBe("1,234,567"); });

test("times are relative to now", () => {
  const now = new Date("2026-11-21T12:00:00Z");
  expect(ago(new Date("2026-11-21T11:59:58Z"), now)).toBe("just now");
  expect(ago(new Date("2026-11-21T11:48:00Z"), now)).toBe("12 min ago");
  expect(ago(new Date("2026-11-18T11:00:00Z"), now)).toBe("3 d ago");
});

test("a moment of another day has its date", () => {
  const at = new Date(2026, 10, 3, 9, 20, 5);
  expect(moment(at, new Date(2026, 10, 3, 23, 59))).toBe("09:20:05");
  expect(moment(at, new Date(2026, 10, 4, 0, 1))).toBe("3 Nov, 09:20:05");
  expect(moment(at, new Date(2027, 10, 3, 9, 20))).toBe("3 Nov 2026, 09:20:05");
});

test.each([[86_400, "1 day"], [259_200, "3 days"], [129_600, "36 hours"], [3600, "1 hour"], [600, "10 minutes"], [90, "90 seconds"], [0.5, "0.50 s"]])(
  "a period of %s seconds is %s",
  (seconds, text) => { expect(period(seconds)).toBe(text); },
);

test("a precision is shown with the reasons of what the devices decided", () => {
  expect(precisionOf("bf16", true, ["precision is bf16: the devices are GPUs."])).toBe("bf16, compiled. precision is bf16: the devices are GPUs.");
  expect(precisionOf("fp32", false, [])).toBe("fp32.");
});
