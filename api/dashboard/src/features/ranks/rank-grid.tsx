/** The ranks at their places in the mesh, coloured by a metric. It is one tab stop; arrow keys go from rank to rank. */

import { memo, useCallback, useMemo, useRef, type KeyboardEvent } from "react";
import type { Measure, RankSample } from "../../api/ranks";
import { arrange, type Line } from "../../model/rank-lines";
import { coordinates, formatMeasure, LEVELS, MEASURE_NAMES, type Scale, scaleOf } from "../../model/ranks";
import "./ranks.css";

export interface RankGridProps {
  sample: RankSample;
  measure: Measure;
  chosen: number | null;
  onChoose: (rank: number) => void;
}

/** Units of the picture are pixels. In a line of few ranks there is room for their numbers. */
const ROOMY = { across: 52, down: 30, text: true };
const CLOSE = { across: 20, down: 20, text: false };
const MOST_ROOMY = 12;
const GAP = 2;
const BETWEEN_BLOCKS = 8;
const BETWEEN_LINES = 6;
const LABEL = 96;
const EDGE = 4;

export function RankGrid({ sample, measure, chosen, onChoose }: RankGridProps) {
  const { axes, size, slow } = sample;
  const { lines, caption } = useMemo(() => arrange(axes, size), [axes, size]);
  const box = useRef<SVGSVGElement>(null);
  const choose = useCallback((rank: number) => { onChoose(rank); }, [onChoose]);
  const values = sample.values[measure];
  const scale = useMemo(() => scaleOf(values), [values]);
  const longest = Math.max(...lines.map(({ blocks }) => blocks.flat().length));
  const cell = longest <= MOST_ROOMY ? ROOMY : CLOSE;
  const width = LABEL + Math.max(...lines.map(({ blocks }) => blocks.length * BETWEEN_BLOCKS + blocks.flat().length * (cell.across + GAP))) + EDGE;
  const height = lines.length * (cell.down + BETWEEN_LINES) + 2 * EDGE;
  const stop = chosen ?? slow?.rank ?? 0;

  const onKeyDown = (event: KeyboardEvent) => {
    const next = step(lines, stop, event.key);
    if (next === null) return;
    event.preventDefault();
    onChoose(next);
    box.current?.querySelector<SVGGElement>(`[data-rank="${next}"]`)?.focus();
  };

  return (
    <div className="rank-grid">
      <p className="quiet">{caption}</p>
      <div className="rank-grid-box">
        <svg ref={box} role="grid" aria-label={`${MEASURE_NAMES[measure]} by rank`} viewBox={`0 0 ${width} ${height}`} width={width} height={height} onKeyDown={onKeyDown}>
          {lines.map((line, row) => {
            const y = EDGE + row * (cell.down + BETWEEN_LINES);
            return (
              <g key={line.blocks[0]?.[0]} role="row" aria-label={line.label || undefined}>
                <text className="rank-grid-label" x={0} y={y + cell.down / 2} aria-hidden="true">{line.label}</text>
                {positions(line, cell.across).map(({ rank, x }) => (
                  <Cell
                    key={rank}
                    rank={rank}
                    x={x}
                    y={y}
                    roomy={cell.text}
                    level={levelOf(scale, values[rank])}
                    value={formatMeasure(measure, values[rank] ?? null)}
                    where={coordinates(axes, rank)}
                    slow={slow?.rank === rank}
                    chosen={chosen === rank}
                    stop={stop === rank}
                    onChoose={choose}
                  />
                ))}
              </g>
            );
          })}
        </svg>
      </div>
      {scale && <Legend measure={measure} scale={scale} />}
    </div>
  );
}

const levelOf = (scale: Scale | null, value: number | null | undefined) => (scale === null || value === null || value === undefined ? null : scale.level(value));

function positions({ blocks }: Line, across: number): { rank: number; x: number }[] {
  let x = LABEL;
  return blocks.flatMap((block) => {
    const found = block.map((rank, at) => ({ rank, x: x + at * (across + GAP) }));
    x += block.length * (across + GAP) + BETWEEN_BLOCKS;
    return found;
  });
}

/** The rank to which a key leads, null for keys that lead nowhere. */
function step(lines: readonly Line[], from: number, key: string): number | null {
  const flat = lines.map(({ blocks }) => blocks.flat());
  const row = flat.findIndex((ranks) => ranks.includes(from));
  const here = flat[row];
  if (here === undefined) return null;
  const at = here.indexOf(from);
  const beside = (ranks: readonly number[] | undefined, column: number) => ranks?.[Math.min(column, ranks.length - 1)] ?? from;
  switch (key) {
    case "ArrowLeft": return beside(here, Math.max(0, at - 1));
    case "ArrowRight": return beside(here, at + 1);
    case "ArrowUp": return beside(flat[row - 1], at);
    case "ArrowDown": return beside(flat[row + 1], at);
    case "Home": return beside(here, 0);
    case "End": return beside(here, here.length - 1);
    case "Enter":
    case " ": return from;
    default: return null;
  }
}

interface CellProps {
  rank: number;
  x: number;
  y: number;
  roomy: boolean;
  level: number | null;
  value: string;
  where: string;
  slow: boolean;
  chosen: boolean;
  stop: boolean;
  onChoose: (rank: number) => void;
}

/** Drawn again only when something of its own has changed: there may be hundreds. */
const Cell = memo(function Cell({ rank, x, y, roomy, level, value, where, slow, chosen, stop, onChoose }: CellProps) {
  const { across, down } = roomy ? ROOMY : CLOSE;
  const name = [`rank ${rank}`, where, value, slow && "computes longer than its peers"].filter(Boolean).join(", ");
  const tone = [`rank-cell level-${level ?? "none"}`, slow && "slow", chosen && "chosen"].filter(Boolean).join(" ");
  return (
    <g
      role="gridcell"
      className={tone}
      data-rank={rank}
      aria-label={name}
      aria-selected={chosen}
      tabIndex={stop ? 0 : -1}
      onClick={() => { onChoose(rank); }}
    >
      <title>{name}</title>
      <rect x={x} y={y} width={across} height={down} rx={3} />
      {roomy && <text x={x + across / 2} y={y + down / 2}>{value}</text>}
    </g>
  );
});

function Legend({ measure, scale: { low, high } }: { measure: Measure; scale: Scale }) {
  return (
    <p className="rank-grid-legend number">
      <span>{formatMeasure(measure, low)}</span>
      <svg aria-hidden="true" viewBox={`0 0 ${LEVELS} 1`} preserveAspectRatio="none">
        {Array.from({ length: LEVELS }, (_, level) => <rect key={level} className={`level-${level}`} x={level} width={1} height={1} />)}
      </svg>
      <span>{formatMeasure(measure, high)}</span>
    </p>
  );
}
