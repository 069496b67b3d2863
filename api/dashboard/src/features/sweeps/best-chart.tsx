/** The best value so far over the trials by number, and the value of each trial as a dot. */

import { useMemo } from "react";
import type { Sweep, Trial } from "../../api/sweeps";
import { Chart, type Along, type Line } from "../../components/chart";
import { integer, number } from "../../model/format";
import { bestSoFar } from "../../model/sweeps";

const TRIALS: Along = { name: "Trial", format: integer };

export function BestChart({ sweep, trials }: { sweep: Sweep; trials: readonly Trial[] }) {
  const { goal, metric } = sweep;
  const lines = useMemo(() => {
    const { whole, partial, best } = bestSoFar(trials, goal);
    const all: Line[] = [
      { label: "Best so far", colour: "blue", points: best },
      { label: "Trial", colour: "orange", scattered: true, points: whole },
      { label: "Not to its end", colour: "grey", scattered: true, points: partial },
    ];
    return all.filter(({ points }) => points.length > 0);
  }, [trials, goal]);
  const last = lines[0]?.points.at(-1);
  if (last === undefined) return <p className="card pad quiet">The chart appears once a trial has a value.</p>;
  return <Chart title={`Best ${metric} so far`} summary={`It is ${number(last.y)} after trial ${last.x}.`} lines={lines} format={number} along={TRIALS} group="sweep" />;
}
