/** Charts of runs over each other, along one axis. */

import { useMemo } from "react";
import type { Run, RunPoint } from "../../api/runs";
import { Chart, type Along, type Line } from "../../components/chart";
import { duration, integer, loss, short } from "../../model/format";
import { labelsOf, line, type Axis } from "../../model/runs";

const GROUP = "compare";

const ALONG: Readonly<Record<Axis, Along>> = {
  step: { name: "Step", format: integer },
  tokens: { name: "Tokens", format: short },
  time: { name: "Time", format: duration },
};

/** `colour`: a colour of the theme, without its dashes. */
export interface ColouredRun extends Run {
  colour: string;
}

const trainLoss = (point: RunPoint) => point.loss;
const speed = (point: RunPoint) => point.tokensPerSecond;

export function RunCharts({ runs, axis }: { runs: readonly ColouredRun[]; axis: Axis }) {
  const names = labelsOf(runs.map(({ job }) => job));
  // Data of a query keeps its identity until it changes: so do the lines that are made of it.
  const known = JSON.stringify([axis, runs.map(({ job, points, validations, colour }) => [job.id, colour, points.length, points.at(-1), validations.length])]);
  const lines = useMemo(() => {
    const of = (dots: boolean, pick: (run: ColouredRun) => readonly RunPoint[], value: (point: RunPoint) => number | null): Line[] =>
      runs.map((run, index) => ({ label: names[index] ?? "", colour: run.colour, dots, points: line(pick(run), axis, value) })).filter(({ points }) => points.length > 0);
    return { train: of(false, (run) => run.points, trainLoss), validation: of(true, (run) => run.validations, trainLoss), speed: of(false, (run) => run.points, speed) };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `known` says when they changed
  }, [known]);
  const shared = { group: GROUP, along: ALONG[axis] };
  if (lines.train.length === 0) return <p className="card pad quiet">Curves appear after the first step.</p>;
  return (
    <div className="charts">
      <Chart title="Training loss (nats per token)" summary={ends(lines.train, loss)} lines={lines.train} format={loss} {...shared} />
      {lines.validation.length > 0 && (
        <Chart title="Validation loss (nats per token)" summary={ends(lines.validation, loss)} lines={lines.validation} format={loss} {...shared} />
      )}
      <Chart title="Tokens per second" summary={ends(lines.speed, integer)} lines={lines.speed} format={integer} {...shared} />
    </div>
  );
}

/** Where each line ends, in words. */
function ends(lines: readonly Line[], format: (value: number | null) => string): string {
  return `${lines.map(({ label, points }) => `${label} ends at ${format(points.at(-1)?.y ?? null)}`).join(", ")}.`;
}
