import { expect, test } from "vitest";
import { fill } from "./http";

test("an address is filled in, and what is not said is left out", () => {
  expect(fill("/v1/jobs/{job}/logs", { path: { job: "a/b c" }, query: { rank: 0, tail: null, text: "" } })).toBe("/v1/jobs/a%2Fb%20c/logs?rank=0");
  expect(fill("/v1/sparklines", { query: { job: ["x", "y&z"] } })).toBe("/v1/sparklines?job=x&job=y%26z");
  expect(fill("/v1/nodes", {})).toBe("/v1/nodes");
});
