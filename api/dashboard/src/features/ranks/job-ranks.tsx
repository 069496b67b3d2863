/** The ranks in their mesh with their metrics, of the newest sample or an earlier one. */

import { useState } from "react";
import type { Job } from "../../api/jobs";
import type { Measure, RankSample } from "../../api/ranks";
import { ProblemNotice } from "../../components/problem-notice";
import { logAddress } from "../../model/addresses";
import { integer, moment } from "../../model/format";
import { isFinal } from "../../model/jobs";
import { MEASURE_NAMES, MOST_SAMPLED } from "../../model/ranks";
import { RankFacts } from "./rank-facts";
import { RankGrid } from "./rank-grid";
import { useRanks } from "./use-ranks";
import "./ranks.css";

const MEASURES: readonly Measure[] = ["compute", "step", "wait", "memory"];

/** `newest`: from the job's stream. */
export function JobRanks({ job, newest }: { job: Job; newest: RankSample | null }) {
  const [measure, setMeasure] = useState<Measure>("compute");
  const [chosen, choose] = useState<number | null>(null);
  const [at, goTo] = useState<number | null>(null);
  const { sample, first, last, problem } = useRanks(job.id, newest, at);
  const rank = chosen !== null && sample && chosen < sample.size ? chosen : null;
  return (
    <section className="job-ranks card" aria-labelledby="ranks-title">
      <div className="card-head">
        <h2 id="ranks-title">Ranks</h2>
        {sample && <MeasureChoice measure={measure} onMeasure={setMeasure} />}
      </div>
      {problem && <ProblemNotice problem={problem} stale={sample !== null} />}
      {!sample && !problem && (
        <p className="pad quiet">{whyNone(job)}</p>
      )}
      {sample && (
        <>
          <div className="job-ranks-body">
            <Verdict sample={sample} />
            <RankGrid sample={sample} measure={measure} chosen={rank} onChoose={choose} />
          </div>
          {rank !== null && <RankFacts sample={sample} rank={rank} logs={logAddress(job.id, rank)} />}
          {first !== null && last !== null && first < last && <History sample={sample} first={first} last={last} at={at} onAt={goTo} />}
        </>
      )}
    </section>
  );
}

function whyNone(job: Job): string {
  if ((job.worldSize ?? 0) > MOST_SAMPLED) return `Jobs of more than ${integer(MOST_SAMPLED)} ranks have no rank metrics.`;
  return isFinal(job.state) ? "No rank metrics of this job are stored." : "Rank metrics appear a few seconds after the first step.";
}

function Verdict({ sample: { slow, size, step, steps } }: { sample: RankSample }) {
  const mean = steps === 1 ? `in step ${step}` : `mean of ${steps} steps up to step ${step}`;
  if (slow) return <p className="job-ranks-slow"><strong>{slow.message}</strong> <span className="quiet">{mean}</span></p>;
  return <p><span className="quiet">{size > 1 && "No rank computes longer than its peers, "}{mean}</span></p>;
}

function MeasureChoice({ measure, onMeasure }: { measure: Measure; onMeasure: (measure: Measure) => void }) {
  return (
    <label className="job-ranks-measure">
      <span className="quiet">Colour by</span>
      <select value={measure} onChange={(event) => { onMeasure(event.target.value as Measure); }}>
        {MEASURES.map((each) => <option key={each} value={each}>{MEASURE_NAMES[each]}</option>)}
      </select>
    </label>
  );
}

interface HistoryProps {
  sample: RankSample;
  first: number;
  last: number;
  at: number | null;
  onAt: (at: number | null) => void;
}

function History({ sample, first, last, at, onAt }: HistoryProps) {
  const when = `step ${sample.step}, ${moment(sample.at)}`;
  return (
    <div className="job-ranks-history">
      <label>
        <span className="unseen">Sample</span>
        <input
          type="range"
          min={first}
          max={last}
          value={at ?? last}
          aria-valuetext={when}
          onChange={(event) => { onAt(Number(event.target.value) === last ? null : Number(event.target.value)); }}
        />
      </label>
      <span className="quiet number">{when}</span>
      <button className="button small" disabled={at === null} onClick={() => { onAt(null); }}>Newest</button>
    </div>
  );
}
