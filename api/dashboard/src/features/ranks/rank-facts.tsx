/** One rank's numbers beside the median of all, and where its log is. */

import { Link } from "wouter";
import type { Measure, RankSample } from "../../api/ranks";
import { coordinates, formatMeasure, MEASURE_NAMES, median } from "../../model/ranks";
import "./ranks.css";

const MEASURES: readonly Measure[] = ["step", "compute", "wait", "memory"];

/** `logs`: the address of its log. */
export function RankFacts({ sample, rank, logs }: { sample: RankSample; rank: number; logs: string }) {
  const node = sample.nodes[rank];
  return (
    <section className="rank-facts" aria-label={`Rank ${rank}`}>
      <header>
        <h3>Rank {rank}</h3>
        <Link href={logs}>Log of this rank</Link>
      </header>
      <p className="quiet">
        {coordinates(sample.axes, rank)}
        {node && <> on <code title={node}>{node.slice(0, 12)}</code></>}
      </p>
      <dl>
        {MEASURES.map((measure) => (
          <div key={measure}>
            <dt>{measure === "memory" && sample.memoryOf ? `Memory, ${sample.memoryOf}` : MEASURE_NAMES[measure]}</dt>
            <dd className="number">
              {formatMeasure(measure, sample.values[measure][rank] ?? null)} <span className="quiet">median {formatMeasure(measure, median(sample.values[measure]))}</span>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
