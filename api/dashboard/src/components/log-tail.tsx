/** The newest log lines. It follows them until the reader scrolls up, and again once the reader is back at the end. */

import { useLayoutEffect, useRef, useState } from "react";
import { KEEP, type LogLine } from "../services/logs";
import "./log-tail.css";

export interface LogTailProps {
  lines: readonly LogLine[];
  worldSize: number;
  rank: number | null;
  onRank: (rank: number | null) => void;
  /** What to say while there are no lines. */
  nothing: string;
}

export function LogTail({ lines, worldSize, rank, onRank, nothing }: LogTailProps) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(true);
  const width = String(Math.max(0, worldSize - 1)).length;

  const toEnd = () => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [lines, following]);

  return (
    <section className="log-tail card" aria-labelledby="logs-title">
      <div className="card-head">
        <h2 id="logs-title">Logs</h2>
        {lines.length >= KEEP && <span className="quiet">newest {KEEP.toLocaleString("en-US")} lines</span>}
        <RankChoice worldSize={worldSize} rank={rank} onRank={onRank} />
      </div>
      <div
        ref={box}
        className="log-tail-lines"
        role="log"
        aria-live="off"
        aria-label="Log lines"
        tabIndex={0}
        onScroll={(event) => { setFollowing(isAtEnd(event.currentTarget)); }}
      >
        {lines.length === 0 && <p className="quiet">{nothing}</p>}
        {lines.map((line) => (
          <div key={line.n} className={line.stream === "stderr" ? "log-line stderr" : "log-line"}>
            {rank === null && <span className="log-rank" title={`rank ${line.rank}`}>{String(line.rank).padStart(width)}</span>}
            <span>{line.text === "" ? " " : line.text}</span>
          </div>
        ))}
      </div>
      {!following && (
        <button className="button log-tail-jump" onClick={() => { setFollowing(true); toEnd(); }}>↓ Newest</button>
      )}
    </section>
  );
}

function RankChoice({ worldSize, rank, onRank }: { worldSize: number; rank: number | null; onRank: (rank: number | null) => void }) {
  return (
    <label className="log-tail-rank">
      <span className="unseen">Rank</span>
      <select
        value={rank ?? ""}
        onChange={(event) => { onRank(event.target.value === "" ? null : Number(event.target.value)); }}
      >
        <option value="">All ranks</option>
        {Array.from({ length: worldSize }, (_, each) => (
          <option key={each} value={each}>rank {each}</option>
        ))}
      </select>
    </label>
  );
}

const isAtEnd = (element: Element) => element.scrollHeight - element.scrollTop - element.clientHeight < 24;
