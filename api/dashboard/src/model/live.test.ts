import { expect, test } from "vitest";
import { toPoint } from "../api/curves";
import { type EventData, type StreamEvent, toStreamEvent } from "../api/events";
import { along, lastStep } from "./curve";
import { EMPTY, ENTRIES, EVALS, init, reduce } from "./live";

function event<Kind extends keyof EventData>(kind: Kind, id: string, data: EventData[Kind]): StreamEvent {
  const made = toStreamEvent({ event: kind, id, data: JSON.stringify(data) });
  if (made === null) throw new Error(`${kind} is not shown`);
  return made;
}

const ts = 1_700_000_000;

const step = (id: string, number: number, loss: number, tokensPerSecond: number) =>
  event("step", id, {
    step: number,
    attempt: 1,
    ts,
    loss,
    lr: null,
    grad_norm: null,
    loss_scale: null,
    skipped: false,
    tokens: 64,
    tokens_per_s: tokensPerSecond,
    step_s: null,
    step_s_min: null,
    step_s_median: null,
    step_s_max: null,
    slowest_rank: null,
    mfu: null,
  });

const validation = (id: string, number: number, loss: number) => event("eval", id, { step: number, loss, unigram_loss: null, tokens: 100, ts });

const save = (id: string, number: number) => event("checkpoint", id, { step: number, path: "/c", bytes: 10, seconds: 0.1, held_s: 0, kept: null, ts });

const EVENTS = [
  event("state", "1.0.0", { state: "queued", reason: null, message: "", ts }),
  event("plan", "2.0.0", {
    layout: "single device",
    world_size: 1,
    parameters: 1000,
    batch: "1",
    tokens_per_step: 64,
    device: "cpu",
    train_tokens: 900,
    validation_tokens: 100,
    unigram_loss: 6.5,
    ts,
  }),
  step("2.1.0", 1, 5.5, 10),
  step("2.2.0", 2, 5.4, 11),
  validation("3.2.0", 2, 5.6),
  save("4.2.0", 2),
  event("incident", "5.2.0", { cause: "exception", rank: 1, node: "n", message: "boom", traceback: "tb", ts }),
];

test("events become the state of the page", () => {
  const live = reduce(EMPTY, EVENTS);
  expect(live.curve.buckets.map(({ values }) => values.loss?.mean)).toEqual([5.5, 5.4]);
  expect(live.newest?.step).toBe(2);
  expect(live.evals).toEqual([{ step: 2, loss: 5.6 }]);
  expect(live.entries.map((e) => e.kind)).toEqual(["state", "checkpoint", "incident"]);
  expect(live.entries[0]).toMatchObject({ at: new Date("2023-11-14T22:13:20Z"), reason: null, message: null });
});

test("events that are reduced twice, cut anywhere, give the same state", () => {
  const once = reduce(EMPTY, EVENTS);
  for (let cut = 0; cut <= EVENTS.length; cut += 1) {
    expect(reduce(reduce(EMPTY, EVENTS.slice(0, cut)), EVENTS)).toEqual({ ...once, version: expect.any(Number) as number });
  }
});

test("the curves and the stream make one curve", () => {
  const one = { low: 5.5, high: 5.5, mean: 5.5, count: 1 };
  const curves = { curve: { width: 1, buckets: [{ place: 0, values: { loss: one } }], end: null }, evals: [{ step: 2, loss: 5.6 }], position: 3, cursor: "0.1.0" };
  const live = reduce(init(EMPTY, curves), EVENTS);
  expect(live.curve.buckets.map(({ place }) => place)).toEqual([0, 1]);
  expect(live.evals).toHaveLength(1);
});

test("entries that the next stream does not join are read again", () => {
  const live = reduce(EMPTY, EVENTS);
  const curves = { curve: live.curve, evals: [], position: 7 };
  expect(init(live, { ...curves, cursor: "5.2.0" }).entries).toEqual(live.entries);
  expect(init(live, { ...curves, cursor: "6.2.0" }).entries).toEqual([]);
});

/** What `/curves` answers of a job that was lost after step 980 and trains again from step 500 on. */
const RESTARTED = { curve: { width: 1, buckets: [], end: toPoint({ step: 510, loss: 2 }) }, evals: [{ step: 500, loss: 3 }], position: 40, cursor: "0.1000.0" };

test("validations that a later attempt has replaced do not come back, whether the page or the stream had them", () => {
  const before = reduce(EMPTY, [step("9.980.0", 980, 1, 10), validation("10.980.0", 900, 1)]);
  const live = reduce(init(before, RESTARTED), [validation("9.1000.0", 500, 3), validation("10.1000.0", 900, 1)]);
  expect(live.evals).toEqual([{ step: 500, loss: 3 }]);
  expect(live.newest?.step).toBe(510);
  expect(reduce(live, [step("40.1001.0", 511, 2, 10), validation("41.1001.0", 600, 2)]).evals.at(-1)).toEqual({ step: 600, loss: 2 });
});

test("a step of a later attempt replaces the validations beyond it", () => {
  const live = reduce(EMPTY, [validation("1.500.0", 500, 3), validation("2.980.0", 900, 1), step("2.981.0", 980, 1, 10)]);
  expect(live.evals.at(-1)?.step).toBe(900);
  expect(reduce(live, [step("3.982.0", 501, 2, 10)]).evals.at(-1)?.step).toBe(500);
});

test.each([1, 2, 4, 6])("a step of a later attempt replaces the steps beyond it, read with %i of them", (together) => {
  const losses: [number, number][] = [[1, 5], [2, 4], [3, 3], [4, 2], [2, 4.5], [3, 3.5]];
  const steps = losses.map(([number, loss], at) => step(`1.${at + 1}.0`, number, loss, 10));
  let live = EMPTY;
  for (let at = 0; at < steps.length; at += together) live = reduce(live, steps.slice(at, at + together));
  expect(along(live.curve, "loss").map(({ x, y }) => [x, y])).toEqual([[1, 5], [2, 4.5], [3, 3.5]]);
  expect([lastStep(live.curve), live.curve.end?.step, live.newest?.step]).toEqual([3, 3, 3]);
});

test("ranges are read again when steps were replaced, and when the curves are read again", () => {
  const before = reduce(EMPTY, [step("1.1.0", 1, 5, 10), step("1.2.0", 2, 4, 10)]);
  expect(reduce(before, [step("1.3.0", 3, 3, 10)]).version).toBe(before.version);
  expect(reduce(before, [step("1.3.0", 2, 3, 10)]).version).not.toBe(before.version);
  expect(init(before, RESTARTED).version).not.toBe(before.version);
});

test("validations are bounded, and the newest is among them", () => {
  const validations = Array.from({ length: EVALS + 1 }, (_, n) => validation(`${n + 1}.0.0`, n + 1, 1));
  const { evals } = reduce(EMPTY, validations);
  expect(evals.length).toBeLessThanOrEqual(EVALS);
  expect(evals.at(-1)?.step).toBe(EVALS + 1);
});

test("the history is bounded", () => {
  const saves = Array.from({ length: ENTRIES + 50 }, (_, n) => save(`${n + 1}.0.0`, n));
  const { entries } = reduce(EMPTY, saves);
  expect(entries).toHaveLength(ENTRIES);
  expect(entries.at(-1)).toMatchObject({ step: ENTRIES + 49 });
});

test("a field that an event leaves out is null, empty or false", () => {
  const { entries } = reduce(EMPTY, [...EVENTS, event("fault", "6.2.0", { id: "fault-1", fault: "kill-supervisor", done: true, message: "killed", ts })]);
  expect(EVENTS[1]).toMatchObject({ kind: "plan", plan: { parameters: 1000, precision: null, compiled: false, choices: [] } });
  expect(entries.at(-1)).toMatchObject({ kind: "fault", rank: null });
});

test("events of an unknown kind are skipped", () => {
  expect(toStreamEvent({ event: "weather", id: "1.0.0", data: "{}" })).toBeNull();
});
