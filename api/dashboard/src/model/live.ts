/** The state of a live job page as one value. `reduce` returns the state after further events. */

import type { Curve, Curves, Eval, Point } from "../api/curves";
import type { Entry, StreamEvent } from "../api/events";
import type { Summary } from "../api/jobs";
import type { RankSample } from "../api/ranks";
import { cut, EMPTY_CURVE, merge } from "./curve";

export interface Live {
  curve: Curve;
  /** The last step of the stream, or of the curves before it has one. */
  newest: Point | null;
  /** By step. */
  evals: readonly Eval[];
  /** Position of the last event that was in the answer with the curves. Its validations leave out those of replaced attempts. */
  answered: number;
  /** Oldest first. */
  entries: readonly Entry[];
  summary: Summary | null;
  /** The newest. */
  ranks: RankSample | null;
  /** Another number whenever steps may have been replaced: ranges that were read before may have the old ones. */
  version: number;
}

/** Validations kept: of more, every second one, the newest among them. */
export const EVALS = 1000;

/** Entries of the history that are kept: a job may save every step. */
export const ENTRIES = 500;

export const EMPTY: Live = {
  curve: EMPTY_CURVE,
  newest: null,
  evals: [],
  answered: 0,
  entries: [],
  summary: null,
  ranks: null,
  version: 0,
};

/** The curves so far. The stream continues at their cursor. Entries of an earlier stream that ended before it go: others are missing between. */
export function init(live: Live, { curve, evals, position: answered, cursor }: Curves): Live {
  const last = live.entries.at(-1);
  const joined = last !== undefined && positionOf(last) >= position(cursor);
  const entries = joined ? live.entries : [];
  return { ...live, curve, newest: curve.end, evals: evals.reduce(addEval, []), answered, entries, version: live.version + 1 };
}

export function reduce(live: Live, events: readonly StreamEvent[]): Live {
  let points: Point[] = [];
  let next = live;
  for (const event of events) {
    if (event.kind === "step") {
      const { point } = event;
      if (next.newest !== null && point.step <= next.newest.step) {
        next = replacedFrom({ ...next, curve: merge(next.curve, points) }, point.step);
        points = [];
      }
      points.push(point);
      next = { ...next, newest: point };
    } else if (event.kind === "eval") next = position(event.id) <= next.answered ? next : { ...next, evals: addEval(next.evals, event.eval) };
    else if (event.kind === "ranks") next = { ...next, ranks: event.sample };
    else if (event.kind === "summary") next = { ...next, summary: event.summary };
    else if (event.kind === "entry") next = { ...next, entries: addEntry(next.entries, event.entry) };
  }
  return { ...next, curve: merge(next.curve, points) };
}

/** A step that is not beyond the newest one is of a later attempt, from an older checkpoint: it replaces what lies beyond it. */
function replacedFrom(live: Live, step: number): Live {
  return { ...live, curve: cut(live.curve, step), evals: live.evals.filter((known) => known.step <= step), version: live.version + 1 };
}

function addEval(evals: readonly Eval[], news: Eval): readonly Eval[] {
  const all = [...evals.filter((known) => known.step !== news.step), news].sort((a, b) => a.step - b.step);
  return all.length <= EVALS ? all : all.filter((_, at) => (all.length - 1 - at) % 2 === 0);
}

function addEntry(entries: readonly Entry[], news: Entry): readonly Entry[] {
  if (entries.some((known) => positionOf(known) === positionOf(news))) return entries;
  return [...entries, news].slice(-ENTRIES);
}

/** Its position among the events of its job. A stream's ids are `events.steps.logs`. */
export const positionOf = (entry: Entry) => position(entry.id);

const position = (cursor: string) => Number(cursor.split(".")[0]);
