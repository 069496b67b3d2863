/** The settings of a job's charts (which, smoothing, log axis, range of steps), as values and as parameters of an address. */

import type { Range } from "../api/curves";
import { AXES, type Axis } from "./runs";

export interface ChartView {
  /** Part of the names of the charts that are shown. */
  find: string;
  /** Weight of the past in the moving average, 0 (none) to 0.99. */
  smooth: number;
  log: boolean;
  /** What a training's own curves run along. */
  by: Axis;
  /** Null: all steps. */
  zoom: Range | null;
}

export const ALL: ChartView = { find: "", smooth: 0, log: false, by: "step", zoom: null };

/** The longest name of a logged metric. */
export const MOST_TEXT = 200;

/** The parameters of an address that are written here. */
export const NAMES = ["find", "smooth", "log", "by", "from", "to"] as const;

export function read(params: URLSearchParams): ChartView {
  const smooth = Number(params.get("smooth") ?? 0);
  return {
    find: (params.get("find") ?? "").slice(0, MOST_TEXT),
    smooth: smooth > 0 && smooth <= 0.99 ? smooth : 0,
    log: params.get("log") === "1",
    by: AXES.find((axis) => axis === params.get("by")) ?? "step",
    zoom: rangeOf(Number(params.get("from") ?? NaN), Number(params.get("to") ?? NaN)),
  };
}

/** Whole steps from 0 on, in order; null for what is no range. */
export function rangeOf(from: number, to: number): Range | null {
  if (!Number.isFinite(from) || !Number.isFinite(to)) return null;
  const low = Math.max(0, Math.round(from));
  const high = Math.round(to);
  return high > low ? [low, high] : null;
}

export function write({ find, smooth, log, by, zoom }: ChartView): URLSearchParams {
  const params = new URLSearchParams();
  if (find !== "") params.set("find", find);
  if (smooth > 0) params.set("smooth", String(smooth));
  if (log) params.set("log", "1");
  if (by !== "step") params.set("by", by);
  if (zoom) {
    params.set("from", String(zoom[0]));
    params.set("to", String(zoom[1]));
  }
  return params;
}
