/** Which lanes a timeline has, and where: ranks grouped by pipeline, then the ideal schedule of one of the pipelines. Px from the top. */

import type { RankSpans, Span, StepSpans } from "../api/traces";
import { flatten, outermost } from "./lane";

/** Height of a lane, from one lane to the next, and of a group's heading. */
export const LANE = 16;
export const PITCH = 24;
export const PIPELINE_HEAD = 22;

export interface Lane {
  name: string;
  rank: number;
  y: number;
  /** Of the training thread, some within others. */
  spans: readonly Span[];
  /** The same as they are drawn, side by side with the gaps between them; and those with a letter. */
  drawn: readonly Span[];
  marked: readonly Span[];
  /** What was sent beside the training thread. */
  background: readonly Span[];
}

export interface Lanes {
  rows: readonly Lane[];
  heads: readonly { text: string; y: number }[];
  height: number;
}

export function lanesOf(whole: StepSpans, detail: StepSpans, pipeline: number): Lanes {
  const rows: Lane[] = [];
  const heads: { text: string; y: number }[] = [];
  let y = 0;
  const group = (text: string | null, lanes: readonly Omit<Lane, "y">[]) => {
    if (lanes.length === 0) return;
    if (text !== null) heads.push({ text, y });
    y += text === null ? 0 : PIPELINE_HEAD;
    for (const lane of lanes) {
      rows.push({ ...lane, y });
      y += PITCH;
    }
  };
  const closer = new Map(detail.ranks.map((rank) => [rank.rank, rank]));
  for (const [number, ranks] of byPipeline(whole.ranks)) {
    group(number === null ? null : `Pipeline ${number}`, ranks.map((rank) => measured(rank, closer.get(rank.rank) ?? rank)));
  }
  group("Ideal schedule", whole.ranks.filter((rank) => rank.pipeline === pipeline).flatMap((rank) => ideal(rank, closer.get(rank.rank) ?? rank)));
  return { rows, heads, height: y };
}

function byPipeline(ranks: readonly RankSpans[]): [number | null, RankSpans[]][] {
  const groups = new Map<number | null, RankSpans[]>();
  for (const rank of ranks) groups.set(rank.pipeline, [...(groups.get(rank.pipeline) ?? []), rank]);
  return [...groups].toSorted(([one], [other]) => (one ?? 0) - (other ?? 0)).map(([number, of]) => [number, of.toSorted((a, b) => (a.place ?? a.rank) - (b.place ?? b.rank))]);
}

const measured = ({ rank, rest }: RankSpans, { spans }: RankSpans) =>
  lane(`rank ${rank}`, rank, spans.filter((span) => span.lane === 0), rest, spans.filter((span) => span.lane !== 0));

/** It stays where none of its actions is in view. */
const ideal = (whole: RankSpans, detail: RankSpans) =>
  whole.ideal.length + detail.ideal.length === 0 ? [] : [lane(`ideal ${whole.rank}`, whole.rank, detail.ideal)];

const lane = (name: string, rank: number, spans: readonly Span[], rest: Span | null = null, background: readonly Span[] = []): Omit<Lane, "y"> => ({
  name,
  rank,
  spans,
  drawn: flatten(rest === null ? spans : [rest, ...spans]),
  marked: outermost(spans),
  background,
});
