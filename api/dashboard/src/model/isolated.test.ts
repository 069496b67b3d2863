import { expect, test } from "vitest";
import { isolated } from "./isolated";

test.each([
  [[], []],
  [[7], [0]],
  [[7, 8], []],
  [[null, 7, null], [1]],
  [[7, 8, null, 9], [3]],
  [[7, null, 8, 9, null, 1], [0, 5]],
  [[undefined, 7, undefined, 8], []],
  [[undefined, 7, undefined, null, 8], [1, 4]],
])("of %j the values at %j stand alone", (values, places) => { expect(isolated(values)).toEqual(places); });
