/** A job's events as the dashboard shows them. `toStreamEvent` is the only place that knows the wire's names. */

import { type Eval, type Point, toPoint } from "./curves";
import { type State, type Summary, toSummary } from "./jobs";
import { type RankSample, type RankWire, toRankSample } from "./ranks";
import type { Frame } from "./sse";

export interface Plan {
  parameters: number | null;
  tokensPerStep: number | null;
  trainTokens: number | null;
  validationTokens: number | null;
  /** The dtype of computation. */
  precision: string | null;
  compiled: boolean;
  /** Why options that are `auto` in the spec have their values, a sentence each. */
  choices: string[];
}

/** A line of the history. `id` is the event's position in the stream. */
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
  | { kind: "reshard"; before: string; after: string }
  | { kind: "fault"; fault: string; rank: number | null; done: boolean; message: string }
);

/** An event of a job's stream, by its kind. */
export type StreamEvent =
  | { kind: "step"; point: Point }
  | { kind: "eval"; eval: Eval }
  | { kind: "plan"; plan: Plan }
  | { kind: "summary"; summary: Summary }
  | { kind: "ranks"; sample: RankSample }
  | { kind: "entry"; entry: Entry };

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
  precision: text(wire.precision),
  compiled: wire.compile === true,
  choices: Array.isArray(wire.choices) ? wire.choices.map(String) : [],
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
    case "reshard":
      return { ...base, kind, before: text(wire.before) ?? "", after: text(wire.after) ?? "" };
    case "fault":
      return { ...base, kind, fault: text(wire.fault) ?? "?", rank: number(wire.rank), done: wire.done === true, message: text(wire.message) ?? "" };
  }
}

/** Null for kinds that this dashboard does not show (yet). */
export function toStreamEvent(frame: Frame): StreamEvent | null {
  const wire = JSON.parse(frame.data) as Wire;
  switch (frame.event) {
    case "step":
      return { kind: "step", point: toPoint(wire as unknown as Parameters<typeof toPoint>[0]) };
    case "eval":
      return { kind: "eval", eval: { step: number(wire.step) ?? 0, loss: number(wire.loss) } };
    case "plan":
      return { kind: "plan", plan: toPlan(wire) };
    case "summary":
      return { kind: "summary", summary: toSummary(wire) };
    case "rank_metrics":
      return { kind: "ranks", sample: toRankSample(wire as unknown as RankWire) };
    case "state":
    case "checkpoint":
    case "incident":
    case "repair":
    case "reshard":
    case "fault":
      return { kind: "entry", entry: toEntry(frame.event, frame.id, wire) };
    default:
      return null;
  }
}
