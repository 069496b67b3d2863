/** All that the job page has been told so far, as one value; `hear` is the only function that makes the next one. */

import { EMPTY, merge, type Curve, type Point } from "./curve";
import type { Curves, Eval } from "../api/curves";
import { placeOf, type Entry, type Plan, type Told } from "../api/events";
import type { Summary } from "../api/jobs";
import type { RankSample } from "../api/ranks";

export interface Live {
  curve: Curve;
  /** The last step that the stream told. */
  newest: Point | null;
  /** By step. */
  evals: readonly Eval[];
  /** Oldest first. */
  entries: readonly Entry[];
  plan: Plan | null;
  summary: Summary | null;
  /** The newest. */
  ranks: RankSample | null;
}

/** Validations kept: of more, every second one, the newest among them. */
export const EVALS = 1000;

/** Timeline entries kept: a job may save every step. */
export const ENTRIES = 500;

export const SILENT: Live = { curve: EMPTY, newest: null, evals: [], entries: [], plan: null, summary: null, ranks: null };

/** The stream goes on where the curves end. */
export const begin = (live: Live, { curve, evals }: Curves): Live => ({ ...live, curve, evals: evals.reduce(addEval, live.evals) });

export function hear(live: Live, told: readonly Told[]): Live {
  const points: Point[] = [];
  let next = live;
  for (const one of told) {
    if (one.is === "step") points.push(one.point);
    else if (one.is === "eval") next = { ...next, evals: addEval(next.evals, one.eval) };
    else if (one.is === "plan") next = { ...next, plan: one.plan };
    else if (one.is === "ranks") next = { ...next, ranks: one.sample };
    else if (one.is === "summary") next = { ...next, summary: one.summary };
    else next = { ...next, entries: addEntry(next.entries, one.entry) };
  }
  return { ...next, curve: merge(next.curve, points), newest: points.at(-1) ?? next.newest };
}

function addEval(evals: readonly Eval[], news: Eval): readonly Eval[] {
  const all = [...evals.filter((known) => known.step !== news.step), news].sort((a, b) => a.step - b.step);
  return all.length <= EVALS ? all : all.filter((_, at) => (all.length - 1 - at) % 2 === 0);
}

function addEntry(entries: readonly Entry[], news: Entry): readonly Entry[] {
  if (entries.some((known) => placeOf(known) === placeOf(news))) return entries;
  return [...entries, news].slice(-ENTRIES);
}
