/** A chart that fills the screen on request, and whose picture and numbers can be downloaded. */

import { type MouseEvent, type ReactNode, useState } from "react";
import type { Range } from "../api/curves";
import { useModal } from "../hooks/use-modal";
import { fileName, type Series, toCsv } from "../model/csv";
import { Chart, type ChartProps } from "./chart";
import { pictureOf, save } from "./chart-files";
import "./chart-panel.css";

export interface ChartPanelProps extends Omit<ChartProps, "tall" | "children"> {
  /** The measured values, as the file has them: nothing is smoothed. */
  series: readonly Series[];
  /** What the files are named after, beside the title. */
  of: string;
  /** The range of steps that the CSV has, where the chart runs along something else. */
  steps?: Range | null;
}

export function ChartPanel({ series, of, steps, ...chart }: ChartPanelProps) {
  const [full, setFull] = useState(false);
  const downloads = <Downloads chart={chart} series={series} of={of} range={(steps === undefined ? chart.zoom : steps) ?? null} />;
  return (
    <>
      <Chart {...chart}>
        <span className="chart-tools">
          {downloads}
          <button className="button small" aria-label={`Full screen of ${chart.title}`} onClick={() => { setFull(true); }}><Corners /></button>
        </span>
      </Chart>
      {full && <FullScreen chart={chart} onClose={() => { setFull(false); }}>{downloads}</FullScreen>}
    </>
  );
}

function FullScreen({ chart, onClose, children }: { chart: ChartProps; onClose: () => void; children: ReactNode }) {
  const dialog = useModal();
  return (
    <dialog ref={dialog} className="chart-full" aria-label={chart.title} onCancel={onClose}>
      <Chart {...chart} tall>
        <span className="chart-tools">
          {children}
          <button className="button small" onClick={onClose}>Close</button>
        </span>
      </Chart>
    </dialog>
  );
}

function Downloads({ chart, series, of, range }: { chart: ChartProps; series: readonly Series[]; of: string; range: Range | null }) {
  const name = fileName(of, chart.title);
  const picture = ({ currentTarget }: MouseEvent) => {
    const figure = currentTarget.closest("figure");
    if (figure) void pictureOf(figure, chart).then((file) => { save(`${name}.png`, file); });
  };
  const numbers = () => { save(`${name}.csv`, new Blob([toCsv(series, range)], { type: "text/csv" })); };
  return (
    <>
      <button className="button small" aria-label={`PNG of ${chart.title}`} onClick={picture}>PNG</button>
      <button className="button small" aria-label={`CSV of ${chart.title}`} onClick={numbers}>CSV</button>
    </>
  );
}

function Corners() {
  return <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true"><path d="M1 4V1h3M8 1h3v3M11 8v3H8M4 11H1V8" fill="none" stroke="currentColor" strokeWidth="1.4" /></svg>;
}
