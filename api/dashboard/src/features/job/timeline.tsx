/** A job's timeline on one line: states as spans, attempts as lines across, incidents and repairs as marks. */

import type { Mark, Span, Timeline as Line } from "../../api/timeline";
import { duration, moment } from "../../model/format";
import { draw, type Drawn } from "../../model/timeline";
import "./timeline.css";

export function StateTimeline({ line, now }: { line: Line; now: Date }) {
  const drawn = draw(line, now.getTime() / 1000);
  if (drawn === null) return null;
  const last = drawn.spans.at(-1)?.span;
  const attempts = last?.attempt ?? 0;
  const incidents = line.marks.filter(({ kind }) => kind === "incident").length;
  const said = `${duration(drawn.ended - drawn.begun)}, ${count(attempts, "attempt")}, ${count(incidents, "incident")}`;
  return (
    <section className="timeline card" aria-label="Timeline">
      <svg role="img" aria-label={`${line.complete ? "" : "The newest part: "}${said}.`} preserveAspectRatio="none" viewBox="0 0 1000 20">
        {drawn.spans.map((one, index) => (
          <rect key={index} className={`timeline-${one.span.state}`} x={one.left * 1000} width={Math.max(one.width * 1000, 1)} y={4} height={12}>
            <title>{formatSpan(one.span)}</title>
          </rect>
        ))}
        {drawn.attempts.map(({ number, at }) => <rect key={number} className="timeline-attempt" x={at * 1000} width={2} y={0} height={20}><title>{`attempt ${number}`}</title></rect>)}
        {drawn.marks.map(({ mark, at }) => (
          <rect key={mark.position} className={`timeline-mark timeline-${mark.kind}`} x={Math.max(0, at * 1000 - 1.5)} width={3} y={0} height={20}><title>{formatMark(mark)}</title></rect>
        ))}
      </svg>
      <Ends drawn={drawn} lasts={last?.ended === null} said={said} />
      <Legend line={line} />
    </section>
  );
}

function Ends({ drawn, lasts, said }: { drawn: Drawn; lasts: boolean; said: string }) {
  return (
    <div className="timeline-ends number">
      <span>{moment(new Date(drawn.begun * 1000))}</span>
      <span>{said}</span>
      <span>{lasts ? "now" : moment(new Date(drawn.ended * 1000))}</span>
    </div>
  );
}

/** The colours that are on the line, in words. */
function Legend({ line: { spans, marks } }: { line: Line }) {
  const states = [...new Set(spans.map(({ state }) => state))];
  const kinds = [...new Set(marks.map(({ kind }) => kind))];
  const newest = spans.at(-1);
  return (
    <ul className="timeline-legend">
      {states.map((state) => <li key={state}><i className={`timeline-${state}`} />{state}</li>)}
      {kinds.map((kind) => <li key={kind}><i className={`timeline-mark timeline-${kind}`} />{kind}</li>)}
      {newest !== undefined && newest.generation > 0 && <li className="quiet">attempt {newest.attempt}, generation {newest.generation}</li>}
    </ul>
  );
}

function formatSpan({ state, attempt, generation, begun, ended, reason }: Span): string {
  const parts = [state, attempt > 0 && `attempt ${attempt}`, generation > 0 && `generation ${generation}`, reason, ended !== null && duration(ended - begun)];
  return `${parts.filter(Boolean).join(", ")}, since ${moment(new Date(begun * 1000))}`;
}

function formatMark({ kind, about, rank, step, ts }: Mark): string {
  const parts = [`${kind} ${about}`, rank !== null && `rank ${rank}`, step !== null && `step ${step}`, moment(new Date(ts * 1000))];
  return parts.filter(Boolean).join(", ");
}

const count = (number: number, what: string) => `${number} ${what}${number === 1 ? "" : "s"}`;
