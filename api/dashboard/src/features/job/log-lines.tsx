/** Log lines as they were written: rank and time beside each, in the colour of its level. */

import type { LogLine } from "../../api/logs";
import { moment } from "../../model/format";
import { levelOf } from "../../model/log-level";
import "./log-tail.css";

export interface LogLinesProps {
  lines: readonly LogLine[];
  /** Digits of the largest rank; 0: ranks are not shown. */
  width: number;
  /** The line that was jumped to. */
  marked?: number | null;
  /** A press on a line leads to its neighbours. */
  onLine?: (line: LogLine) => void;
}

export function LogLines({ lines, width, marked = null, onLine }: LogLinesProps) {
  return lines.map((line) => (
    <div key={line.position} className={line.stream === "stdout" ? "log-line" : `log-line ${line.stream}`} data-level={levelOf(line.text) ?? undefined} data-marked={line.position === marked || undefined}>
      {width > 0 && <span className="log-rank" title={`rank ${line.rank}`}>{String(line.rank).padStart(width)}</span>}
      {line.at && <time className="log-time" dateTime={line.at.toISOString()} title={line.at.toLocaleString()}>{moment(line.at)}</time>}
      {line.stream === "exec" && <span className="log-rank" title="Output of a command beside the rank">exec</span>}
      {line.stream === "gate" && <span className="log-rank" title="Who reached the rank by a terminal or a port">gate</span>}
      {onLine ? <button className="log-hit" data-listed onClick={() => { onLine(line); }}>{line.text === "" ? " " : line.text}</button> : <span>{line.text === "" ? " " : line.text}</span>}
    </div>
  ));
}
