/** The query of a log: text, level, stream, rank and time. */

import type { SyntheticEvent } from "react";
import { type Level, LEVELS, type LogQuery, type Stream, STREAMS } from "../../api/log-search";
import { MOST_TEXT } from "../../model/log-search";

export interface LogFilterProps {
  query: LogQuery;
  worldSize: number;
  onQuery: (changes: Partial<LogQuery>) => void;
}

const LEVEL_NAMES: Readonly<Record<Level, string>> = { "": "Any level", warning: "Warnings and errors", error: "Errors" };

export function LogFilter({ query, worldSize, onQuery }: LogFilterProps) {
  return (
    <form className="log-filter" role="search" aria-label="Search the logs" onSubmit={(event: SyntheticEvent) => { event.preventDefault(); }}>
      <label>
        <span className="unseen">Text</span>
        <input type="search" placeholder="Search all lines" maxLength={MOST_TEXT} value={query.text} onChange={(event) => { onQuery({ text: event.target.value }); }} />
      </label>
      <button type="button" className="button log-regex" aria-pressed={query.regex} aria-label="Regular expression" title="The text is a regular expression (RE2)" onClick={() => { onQuery({ regex: !query.regex }); }}>.*</button>
      <label>
        <span className="unseen">Level</span>
        <select value={query.level} onChange={(event) => { onQuery({ level: event.target.value as Level }); }}>
          {LEVELS.map((level) => <option key={level} value={level}>{LEVEL_NAMES[level]}</option>)}
        </select>
      </label>
      <label>
        <span className="unseen">Stream</span>
        <select value={query.stream} onChange={(event) => { onQuery({ stream: event.target.value as Stream }); }}>
          {STREAMS.map((stream) => <option key={stream} value={stream}>{stream === "" ? "Both streams" : stream}</option>)}
        </select>
      </label>
      <RankChoice worldSize={worldSize} rank={query.rank} onRank={(rank) => { onQuery({ rank }); }} />
      <Moment name="From" value={query.since} onValue={(since) => { onQuery({ since }); }} />
      <Moment name="Until" value={query.until} onValue={(until) => { onQuery({ until }); }} />
    </form>
  );
}

function RankChoice({ worldSize, rank, onRank }: { worldSize: number; rank: number | null; onRank: (rank: number | null) => void }) {
  return (
    <label>
      <span className="unseen">Rank</span>
      <select value={rank ?? ""} onChange={(event) => { onRank(event.target.value === "" ? null : Number(event.target.value)); }}>
        <option value="">All ranks</option>
        {Array.from({ length: worldSize }, (_, each) => <option key={each} value={each}>rank {each}</option>)}
        {rank !== null && rank >= worldSize && <option value={rank}>rank {rank}</option>}
      </select>
    </label>
  );
}

/** A moment of the reader's own clock, as unix seconds. */
function Moment({ name, value, onValue }: { name: string; value: number | null; onValue: (value: number | null) => void }) {
  const change = (text: string) => {
    const seconds = new Date(text).getTime() / 1000;
    onValue(Number.isFinite(seconds) ? seconds : null);
  };
  return (
    <label className="log-moment">
      <span className="quiet">{name}</span>
      <input type="datetime-local" step={1} value={value === null ? "" : local(value)} onChange={(event) => { change(event.target.value); }} />
    </label>
  );
}

/** `2026-11-21T12:00:04`, by the reader's clock. */
function local(seconds: number): string {
  const at = new Date(seconds * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
