/** What a job told, as the dashboard shows it. `toTold` is the only place that knows the wire's names. */

import type { Point } from "../model/curve";
import { toPoint, type Eval } from "./curves";
import { toSummary, type State, type Summary } from "./jobs";
import { toRankSample, type RankSample, type RankWire } from "./ranks";
import type { Frame } from "./sse";

export interface Plan {
  parameters: number | null;
  tokensPerStep: number | null;
  trainTokens: number | null;
  validationTokens: number | null;
}

/** A line of the timeline. `id` is the event's position in the stream. */
export type Entry = { id: string; at: Date | null } & (
  | { kind: "state"; state: State; reason: string | null; message: string | null }
  | { kind: "checkpoint"; step: number; path: string; bytes: number | null; seconds: number | null }
  | {
      kind: "incident";
      cause: string;
      rank: number | null;
      node: string | null;
      message: string;
      traceback: string | null;
    }
  | { kind: "repair"; cause: string; generation: number | null; step: number | null; seconds: number | null }
  | { kind: "relayout"; before: string; after: string }
  | { kind: "fault"; fault: string; rank: number | null; done: boolean; message: string }
);

export type Told =
  | { is: "step"; point: Point }
  | { is: "eval"; eval: Eval }
  | { is: "plan"; plan: Plan }
  | { is: "summary"; summary: Summary }
  | { is: "ranks"; sample: RankSample }
  | { is: "entry"; entry: Entry };

type Wire = Record<string, unknown>;

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : null);
const number = (value: unknown) => (typeof value === "number" ? value : null);

/** Unix seconds, or ISO 8601. */
function toDate(ts: unknown): Date | null {
  if (typeof ts === "number") return new Date(ts * 1000);
  return typeof ts === "string" ? new Date(ts) : null;
}

export const toPlan = (wire: Wire): Plan => ({
  parameters: number(wire.parameters),
  tokensPerStep: number(wire.tokens_per_step),
  trainTokens: number(wire.train_tokens),
  validationTokens: number(wire.validation_tokens),
});

/** Of one event. */
export function toEntry(kind: Entry["kind"], id: string, wire: Wire): Entry {
  const base = { id, at: toDate(wire.ts) };
  switch (kind) {
    case "state":
      return { ...base, kind, state: text(wire.state) ?? "?", reason: text(wire.reason), message: text(wire.message) };
    case "checkpoint":
      return {
        ...base,
        kind,
        step: number(wire.step) ?? 0,
        path: text(wire.path) ?? "",
        bytes: number(wire.bytes),
        seconds: number(wire.seconds),
      };
    case "incident":
      return {
        ...base,
        kind,
        cause: text(wire.cause) ?? "unknown",
        rank: number(wire.rank),
        node: text(wire.node),
        message: text(wire.message) ?? "",
        traceback: text(wire.traceback),
      };
    case "repair":
      return {
        ...base,
        kind,
        cause: text(wire.cause) ?? "unknown",
        generation: number(wire.generation),
        step: number(wire.step),
        seconds: number(wire.seconds),
      };
    case "relayout":
      return { ...base, kind, before: text(wire.before) ?? "", after: text(wire.after) ?? "" };
    case "fault":
      return { ...base, kind, fault: text(wire.fault) ?? "?", rank: number(wire.rank), done: wire.done === true, message: text(wire.message) ?? "" };
  }
}

/** Its place among the events of its job. A stream's ids are `events.steps.logs`. */
export const placeOf = (entry: Entry) => Number(entry.id.split(".")[0]);

/** Null for kinds that this dashboard does not show (yet). */
export function toTold(frame: Frame): Told | null {
  const wire = JSON.parse(frame.data) as Wire;
  switch (frame.event) {
    case "step":
      return { is: "step", point: toPoint(wire as unknown as Parameters<typeof toPoint>[0]) };
    case "eval":
      return { is: "eval", eval: { step: number(wire.step) ?? 0, loss: number(wire.loss) } };
    case "plan":
      return { is: "plan", plan: toPlan(wire) };
    case "summary":
      return { is: "summary", summary: toSummary(wire) };
    case "ranks":
      return { is: "ranks", sample: toRankSample(wire as unknown as RankWire) };
    case "state":
    case "checkpoint":
    case "incident":
    case "repair":
    case "relayout":
    case "fault":
      return { is: "entry", entry: toEntry(frame.event, frame.id, wire) };
    default:
      return null;
  }
}
