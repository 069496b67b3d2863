/** The settings of a comparison, beside those of its charts: the baseline and the table's metrics, as values and in an address. */

import * as chartView from "./chart-view";
import { RESULTS, type ResultKind } from "./results";

export interface CompareView extends chartView.ChartView {
  /** Id of the baseline; the first run where it is none of the runs. */
  base: string;
  /** Charts show the difference to the baseline. */
  difference: boolean;
  /** Which value of each metric the table has. */
  result: ResultKind;
  /** Paths of the table's metrics (`results.ts`); null: those that are usual. */
  columns: readonly string[] | null;
}

export const NAMES = [...chartView.NAMES, "base", "difference", "result", "metric"] as const;

export const read = (params: URLSearchParams): CompareView => ({
  ...chartView.read(params),
  base: params.get("base") ?? "",
  difference: params.get("difference") === "1",
  result: RESULTS.find((kind) => kind === params.get("result")) ?? "last",
  // Without any metric the parameter is there once, and empty.
  columns: params.has("metric") ? [...new Set(params.getAll("metric"))].filter((path) => path !== "").slice(0, MOST_COLUMNS) : null,
});

/** As many as one answer has curves. */
export const MOST_COLUMNS = 24;

export function write(view: CompareView): URLSearchParams {
  const params = chartView.write(view);
  if (view.base !== "") params.set("base", view.base);
  if (view.difference) params.set("difference", "1");
  if (view.result !== "last") params.set("result", view.result);
  for (const path of view.columns?.length === 0 ? [""] : view.columns ?? []) params.append("metric", path);
  return params;
}
