/** What is drawn of one curve: the line, smoothed if wanted, and then the measured one faintly below it. */

import type { Drawn } from "../api/curves";
import type { Line } from "./chart";
import { smoothed } from "../model/curve";

export interface CurveStyle {
  label: string;
  colour: string;
  /** Points have extremes that differ from the mean. */
  band: boolean;
  /** Weight of the past, 0: none. */
  weight: number;
}

export function curveLines(points: readonly Drawn[], { label, colour, band, weight }: CurveStyle): Line[] {
  const line: Line = { label: weight > 0 ? `${label} (smoothed)` : label, colour, band, points: smoothed(points, weight) };
  return weight > 0 && !band ? [{ label: "raw", colour, faint: true, points }, line] : [line];
}
