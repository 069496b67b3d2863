/** A job's loss as a small picture: a band from the lowest to the highest of each bucket of steps, so that spikes are seen. */

import type { LossSparkline } from "../../api/sparklines";
import { loss } from "../../model/format";
import "./jobs.css";

const WIDTH = 96;
const HEIGHT = 24;

export function Sparkline({ curve, name }: { curve: LossSparkline; name: string }) {
  const path = band(curve);
  if (path === null) return null;
  const first = curve.high.find((value) => value !== null) ?? null;
  const last = curve.low.findLast((value) => value !== null) ?? null;
  return (
    <svg className="sparkline" role="img" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-label={`Loss of ${name}: from ${loss(first)} to ${loss(last)}`}>
      <path d={path} />
    </svg>
  );
}

/** There along the highest, back along the lowest. */
function band({ low, high }: LossSparkline): string | null {
  const known = high.flatMap((value, at) => (value === null ? [] : [{ at, high: value, low: low[at] ?? value }]));
  const [first] = known;
  const last = known.at(-1);
  if (first === undefined || last === undefined) return null;
  const bottom = Math.min(...known.map((bucket) => bucket.low));
  const range = Math.max(...known.map((bucket) => bucket.high)) - bottom || 1;
  const x = (at: number) => ((at - first.at) / (last.at - first.at || 1)) * WIDTH;
  const y = (value: number) => 1 + (1 - (value - bottom) / range) * (HEIGHT - 2);
  const there = known.map((bucket) => `${x(bucket.at).toFixed(1)} ${y(bucket.high).toFixed(1)}`);
  const back = known.toReversed().map((bucket) => `${x(bucket.at).toFixed(1)} ${y(bucket.low).toFixed(1)}`);
  return `M${[...there, ...back].join("L")}Z`;
}
