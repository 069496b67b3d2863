/** One incident: its description, and below it the folded stacks, traceback and log lines. */

import type { Incident } from "../../api/incidents";
import { duration, moment } from "../../model/format";
import "./job.css";

export function IncidentCard({ incident }: { incident: Incident }) {
  const at = new Date(incident.ts * 1000);
  return (
    <article className={incident.repair ? "incident repaired" : "incident"} aria-label={`${incident.cause} at ${moment(at)}`}>
      <header>
        <code>{incident.cause}</code>
        {incident.rank !== null && <span>rank {incident.rank}</span>}
        {incident.step !== null && <span>step {incident.step.toLocaleString("en-US")}</span>}
        {incident.repair?.seconds != null && <span className="incident-repair">repaired in {duration(incident.repair.seconds)}</span>}
        <time dateTime={at.toISOString()} title={at.toLocaleString()}>{moment(at)}</time>
      </header>
      <p>{incident.summary}</p>
      <UnfinishedCollectives incident={incident} />
      {incident.nccl_ras.length > 0 && <Folded title="Launch counts of NCCL" text={incident.nccl_ras.join("\n")} />}
      {incident.stacks.map(({ ranks, stack }) => (
        <Folded key={ranks.join()} title={`Stacks of ${formatRanks(ranks)}`} text={stack} />
      ))}
      {incident.traceback && <Folded title="Traceback" text={incident.traceback} />}
      {incident.log.length > 0 && <Folded title={`Last log lines${incident.rank === null ? "" : ` of rank ${incident.rank}`}`} text={incident.log.join("\n")} />}
    </article>
  );
}

/** The last collective that was entered and not done, by group. */
function UnfinishedCollectives({ incident: { waiting } }: { incident: Incident }) {
  if (waiting.length === 0) return null;
  return (
    <details>
      <summary>Unfinished collectives</summary>
      <ul>
        {waiting.map((one) => (
          <li key={`${one.group} ${one.seq} ${one.ranks.join()}`}>
            <code>{one.op}</code> number {one.seq} of {one.group} ({formatRanks(one.members)}): {formatRanks(one.ranks)} waited {duration(one.seconds)}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Folded({ title, text }: { title: string; text: string }) {
  return (
    <details>
      <summary>{title}</summary>
      <pre tabIndex={0} aria-label={title}>{text}</pre>
    </details>
  );
}

/** `rank 3`, `ranks 0 to 2, 5`. */
export function formatRanks(ranks: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const rank of ranks.toSorted((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  const words = runs.map(([from, to]) => (from === to ? String(from) : to === from + 1 ? `${from}, ${to}` : `${from} to ${to}`));
  return `${ranks.length === 1 ? "rank" : "ranks"} ${words.join(", ")}`;
}
