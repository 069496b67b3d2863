/** A job's events as the dashboard shows them, from what the stream sends: that has the types of `api.d.ts`, made from the types of events. */

import { type Eval, type Point, toPoint } from "./curves";
import type { Schema } from "./http";
import { type State, type Summary, toSummary } from "./jobs";
import { type RankSample, toRankSample } from "./ranks";
import type { Frame } from "./sse";

/** The data of an event, by its kind. */
export type EventData = Schema<"JobEvents">;

/** An event of one of these kinds, as it is sent. */
export type SentEvent<Kinds extends keyof EventData = keyof EventData> = { [Kind in Kinds]: { kind: Kind; data: EventData[Kind] } }[Kinds];

export interface Plan {
  parameters: number | null;
  tokensPerStep: number | null;
  trainTokens: number | null;
  validationTokens: number | null;
  /** The dtype of computation. */
  precision: string | null;
  compiled: boolean;
  /** Why options that are `auto` in the spec have their values, a sentence each. */
  choices: readonly string[];
}

/** A line of the history. `id` is the event's position in the stream. */
export type Entry = { id: string; at: Date } & (
  | { kind: "state"; state: State; reason: string | null; message: string | null }
  | { kind: "checkpoint"; step: number; path: string; bytes: number; seconds: number }
  | {
      kind: "incident";
      cause: string;
      rank: number | null;
      node: string | null;
      message: string;
      traceback: string | null;
    }
  | { kind: "repair"; cause: string; generation: number; step: number; seconds: number }
  | { kind: "reshard"; before: string; after: string }
  | { kind: "fault"; fault: string; rank: number | null; done: boolean; message: string }
);

/** An event of a job's stream, by its kind. */
export type StreamEvent =
  | { kind: "step"; point: Point }
  | { kind: "eval"; id: string; eval: Eval }
  | { kind: "plan"; plan: Plan }
  | { kind: "summary"; summary: Summary }
  | { kind: "ranks"; sample: RankSample }
  | { kind: "entry"; entry: Entry };

const text = (value: string | null | undefined) => (value === undefined || value === "" ? null : value);

export const toPlan = (wire: EventData["plan"] | Schema<"Plan">): Plan => ({
  parameters: wire.parameters,
  tokensPerStep: wire.tokens_per_step,
  trainTokens: wire.train_tokens,
  validationTokens: wire.validation_tokens,
  precision: text(wire.precision),
  compiled: wire.compile ?? false,
  choices: wire.choices ?? [],
});

export function toEntry(id: string, { kind, data }: SentEvent<Entry["kind"]>): Entry {
  const base = { id, at: new Date(data.ts * 1000) };
  switch (kind) {
    case "state":
      return { ...base, kind, state: data.state, reason: text(data.reason), message: text(data.message) };
    case "checkpoint":
      return { ...base, kind, step: data.step, path: data.path, bytes: data.bytes, seconds: data.seconds };
    case "incident":
      return {
        ...base,
        kind,
        cause: data.cause,
        rank: data.rank ?? null,
        node: text(data.node),
        message: data.message,
        traceback: text(data.traceback),
      };
    case "repair":
      return { ...base, kind, cause: data.cause, generation: data.generation, step: data.step, seconds: data.seconds };
    case "reshard":
      return { ...base, kind, before: data.before, after: data.after };
    case "fault":
      return { ...base, kind, fault: data.fault, rank: data.rank ?? null, done: data.done, message: data.message };
  }
}

/** Null for kinds that this dashboard does not show (yet). */
export function toStreamEvent(frame: Frame): StreamEvent | null {
  // A frame is text. The control plane names it after the kind of its data.
  const sent = { kind: frame.event, data: JSON.parse(frame.data) as unknown } as SentEvent;
  switch (sent.kind) {
    case "step":
      return { kind: "step", point: toPoint(sent.data) };
    case "eval":
      return { kind: "eval", id: frame.id, eval: { step: sent.data.step, loss: sent.data.loss } };
    case "plan":
      return { kind: "plan", plan: toPlan(sent.data) };
    case "summary":
      return { kind: "summary", summary: toSummary(sent.data) };
    case "rank_metrics":
      return { kind: "ranks", sample: toRankSample(sent.data) };
    case "state":
    case "checkpoint":
    case "incident":
    case "repair":
    case "reshard":
    case "fault":
      return { kind: "entry", entry: toEntry(frame.id, sent) };
    default:
      return null;
  }
}
