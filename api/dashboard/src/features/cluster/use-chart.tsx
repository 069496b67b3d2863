/** One chart of what machines use over time. */

import { type ReactNode, useMemo } from "react";
import type { Range, UseChart } from "../../api/cluster";
import { Chart, type Line } from "../../components/chart";
import { alongTime, formatOf } from "../../model/system-metrics";

/** Of the theme. Lines beyond them begin with the first again. */
const COLOURS = ["blue", "orange", "green", "violet", "red", "grey"] as const;
const SECONDS: Readonly<Record<Range, number>> = { hour: 3600, day: 86_400, week: 7 * 86_400 };

interface UsePlotProps {
  title: string;
  chart: UseChart;
  range: Range;
  /** Charts of one group share their cursor. */
  group: string;
  children?: ReactNode;
}

export function UsePlot({ title, chart, range, group, children }: UsePlotProps) {
  const lines = useMemo<Line[]>(() => chart.lines.map(({ label, points }, at) => ({ label, points, colour: COLOURS[at % COLOURS.length] ?? "grey" })), [chart]);
  const format = formatOf(chart.unit);
  const along = alongTime(SECONDS[range]);
  const summary = `${chart.lines.map(({ label, last }) => `${label} ends at ${format(last)}`).join(", ")}.`;
  return <Chart title={title} summary={summary} lines={lines} format={format} group={group} along={along}>{children}</Chart>;
}
