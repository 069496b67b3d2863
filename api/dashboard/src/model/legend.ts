/** The legend of a chart. It shows a line's exact value where there is one, and nothing beyond the line's end. */

/** A point of a line; with `from` and `to` it stands for several steps, of which `y` is the mean. */
export interface LegendPoint {
  x: number;
  y: number | null;
  from?: number;
  to?: number;
}

type Format = (value: number | null) => string;

/** At `x` under the pointer, else where the newest is shown. `place` is the format of places along the line. */
export function legendValue(points: readonly LegendPoint[], x: number, pointed: boolean, format: Format, place: Format): string {
  const last = points.findLast(({ y }) => y !== null);
  if (last === undefined || (pointed && x > last.x)) return format(null);
  const found = points.findLast((point) => point.x <= x && point.y !== null);
  if (found === undefined) return format(null);
  const value = isMean(found) ? `mean ${format(found.y)}` : format(found.y);
  return found.x === x ? value : `${value} at ${placeOf(found, place)}`;
}

/** The legend's place itself: a step, or the steps that the point there stands for. */
export function legendPlace(lines: readonly (readonly LegendPoint[])[], x: number | null, place: Format): string {
  const several = lines.map((points) => points.find((point) => point.x === x)).find((point) => point !== undefined && isMean(point));
  return several === undefined ? place(x) : placeOf(several, place);
}

const isMean = ({ from, to }: LegendPoint) => from !== undefined && to !== undefined && to > from;

const placeOf = (point: LegendPoint, place: Format) => (isMean(point) ? `${place(point.from ?? null)}–${place(point.to ?? null)}` : place(point.x));
