import { expect, test } from "vitest";
import { type StreamEvent, toStreamEvent } from "../api/events";
import { EMPTY, ENTRIES, EVALS, init, reduce } from "./live";

function event(kind: string, id: string, data: object): StreamEvent {
  const made = toStreamEvent({ event: kind, id, data: JSON.stringify(data) });
  if (made === null) throw new Error(`${kind} is not shown`);
  return made;
}

const EVENTS = [
  event("state", "1.0.0", { state: "queued", ts: 1_700_000_000 }),
  event("plan", "2.0.0", { parameters: 1000, tokens_per_step: 64, ts: 1_700_000_001 }),
  event("step", "2.1.0", { step: 1, loss: 5.5, tokens_per_s: 10 }),
  event("step", "2.2.0", { step: 2, loss: 5.4, tokens_per_s: 11 }),
  event("eval", "3.2.0", { step: 2, loss: 5.6 }),
  event("checkpoint", "4.2.0", { step: 2, path: "/c/step-2", bytes: 10, seconds: 0.1 }),
  event("incident", "5.2.0", { cause: "exception", rank: 1, node: "n", message: "boom", traceback: "tb" }),
];

test("events become the state of the page", () => {
  const live = reduce(EMPTY, EVENTS);
  expect(live.curve.buckets.map(({ values }) => values.loss?.mean)).toEqual([5.5, 5.4]);
  expect(live.newest?.step).toBe(2);
  expect(live.evals).toEqual([{ step: 2, loss: 5.6 }]);
  expect(live.plan?.parameters).toBe(1000);
  expect(live.entries.map((e) => e.kind)).toEqual(["state", "checkpoint", "incident"]);
  expect(live.entries[0]?.at).toEqual(new Date("2023-11-14T22:13:20Z"));
});

test("events that are reduced twice, cut anywhere, give the same state", () => {
  const once = reduce(EMPTY, EVENTS);
  for (let cut = 0; cut <= EVENTS.length; cut += 1) {
    expect(reduce(reduce(EMPTY, EVENTS.slice(0, cut)), EVENTS)).toEqual(once);
  }
});

test("the curves and the stream make one curve", () => {
  const one = { low: 5.5, high: 5.5, mean: 5.5, count: 1 };
  const curves = { curve: { width: 1, buckets: [{ place: 0, values: { loss: one } }], end: null }, evals: [{ step: 2, loss: 5.6 }], cursor: "0.1.0" };
  const live = reduce(init(EMPTY, curves), EVENTS);
  expect(live.curve.buckets.map(({ place }) => place)).toEqual([0, 1]);
  expect(live.evals).toHaveLength(1);
});

test("validations are bounded, and the newest is among them", () => {
  const validations = Array.from({ length: EVALS + 1 }, (_, n) => event("eval", `${n + 1}.0.0`, { step: n + 1, loss: 1 }));
  const { evals } = reduce(EMPTY, validations);
  expect(evals.length).toBeLessThanOrEqual(EVALS);
  expect(evals.at(-1)?.step).toBe(EVALS + 1);
});

test("the history is bounded", () => {
  const saves = Array.from({ length: ENTRIES + 50 }, (_, n) => event("checkpoint", `${n + 1}.0.0`, { step: n, path: "p" }));
  const { entries } = reduce(EMPTY, saves);
  expect(entries).toHaveLength(ENTRIES);
  expect(entries.at(-1)).toMatchObject({ step: ENTRIES + 49 });
});

test("events of an unknown kind are skipped", () => {
  expect(toStreamEvent({ event: "weather", id: "1.0.0", data: "{}" })).toBeNull();
});
