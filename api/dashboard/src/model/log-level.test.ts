import { expect, test } from "vitest";
import { levelOf } from "./log-level";

test.each([
  ["RuntimeError: no", "error"],
  ["Traceback (most recent call last):", "error"],
  ["FATAL", "error"],
  ["UserWarning: an ERROR", "error"],
  ["[W] warn: slow", "warning"],
  ["step 3", null],
])("%s", (text, level) => { expect(levelOf(text)).toBe(level); });
