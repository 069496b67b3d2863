/**
 * How the ranks are laid out in the picture: tensor groups side by side as one block, the outermost of several axes in rows, all others
 * along them. A row that is too wide continues in the next line.
 */

import type { Axis } from "../api/ranks";

export interface Line {
  /** What its ranks have in common; empty if it continues the line before. */
  label: string;
  /** Ranks in blocks: the ranks of one tensor group, or one rank. */
  blocks: readonly (readonly number[])[];
}

export interface Arrangement {
  lines: readonly Line[];
  /** In words: what rows, columns and blocks are. */
  caption: string;
}

/** Ranks in a line, unless one tensor group has more. */
const WIDEST = 32;

export function arrange(axes: readonly Axis[] | null, size: number): Arrangement {
  const wide = (axes ?? []).filter(({ degree }) => degree > 1);
  const inside = wide.at(-1)?.name === "tensor" ? wide.at(-1) : undefined;
  const outer = inside ? wide.slice(0, -1) : wide;
  const rows = outer.length > 1 ? outer[0] : undefined;
  const columns = rows ? outer.slice(1) : outer;
  const block = inside?.degree ?? 1;
  const perRow = rows ? size / rows.degree : size;
  const perLine = Math.max(1, Math.floor(WIDEST / block)) * block;
  const lines: Line[] = [];
  for (let first = 0; first < size; first += perRow) {
    for (let from = first; from < first + perRow; from += perLine) {
      const to = Math.min(from + perLine, first + perRow);
      lines.push({ label: rows ? (from === first ? `${rows.name} ${first / perRow}` : "") : label(columns, block, from, to), blocks: blocks(from, to, block) });
    }
  }
  return { lines, caption: caption(rows, columns, inside) };
}

function blocks(from: number, to: number, block: number): number[][] {
  const found: number[][] = [];
  for (let at = from; at < to; at += block) found.push(Array.from({ length: Math.min(block, to - at) }, (_, i) => at + i));
  return found;
}

function label(columns: readonly Axis[], block: number, from: number, to: number): string {
  const [column] = columns;
  const [name, unit] = column && columns.length === 1 ? [column.name, block] : [to - from > 1 ? "ranks" : "rank", 1];
  const [first, last] = [Math.floor(from / unit), Math.ceil(to / unit) - 1];
  return first === last ? `${name} ${first}` : `${name} ${first}–${last}`;
}

function caption(rows: Axis | undefined, columns: readonly Axis[], inside: Axis | undefined): string {
  const parts = [
    rows && `Rows: ${rows.name}.`,
    columns.length > 0 && `Columns: ${columns.map(({ name }) => name).join(" × ")}${inside ? ", each a block of tensor ranks" : ""}.`,
    columns.length === 0 && inside && "A block of tensor ranks.",
  ];
  return parts.filter(Boolean).join(" ");
}
