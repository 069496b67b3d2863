import { expect, test, vi } from "vitest";
import { fill, get } from "./http";

test("an address is filled in, and what is not said is left out", () => {
  expect(fill("/v1/jobs/{job}/logs", { path: { job: "a/b c" }, query: { rank: 0, tail: null, text: "" } })).toBe("/v1/jobs/a%2Fb%20c/logs?rank=0");
  expect(fill("/v1/sparklines", { query: { job: ["x", "y&z"] } })).toBe("/v1/sparklines?job=x&job=y%26z");
  expect(fill("/v1/nodes", {})).toBe("/v1/nodes");
});

test("a control plane that is slow is not one that is gone", async () => {
  const never = (_: string, { signal }: RequestInit) => new Promise((__, reject) => { signal?.addEventListener("abort", () => { reject(signal.reason as Error); }); });
  vi.stubGlobal("fetch", never);
  await expect(get("/v1/nodes", { timeoutMs: 5 })).rejects.toMatchObject({ status: 0, code: "timeout" });
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("refused")));
  await expect(get("/v1/nodes", {})).rejects.toMatchObject({ status: 0, code: "unreachable" });
  const broken = { ok: true, json: () => Promise.reject(new TypeError("terminated")) };
  vi.stubGlobal("fetch", () => Promise.resolve(broken));
  await expect(get("/v1/nodes", {})).rejects.toMatchObject({ status: 0, code: "unreachable" });
  vi.unstubAllGlobals();
});
