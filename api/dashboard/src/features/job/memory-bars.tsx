/** Memory of the ranks by kind: a bar to the least of all ranks, lighter up to the most, and a mark at the formula's value. */

import type { Held, Range } from "../../api/resources";
import { bytes } from "../../model/format";
import "./memory-bars.css";

const NAMES: Readonly<Record<string, string>> = {
  parameters: "Parameters",
  gradients: "Gradients",
  optimizer: "Optimizer",
  activations: "Activations",
  logits: "Logits",
  buffers: "Buffers",
  workspace: "Workspace",
  allocated: "Allocated in total",
};

/** `reason`: why there is no formula at all; the page shows it elsewhere. */
export function MemoryBars({ memory, reason = null }: { memory: readonly Held[]; reason?: string | null }) {
  const most = Math.max(1, ...memory.flatMap(({ measured, formula, planned }) => [measured?.high ?? 0, formula?.high ?? 0, planned ?? 0]));
  return (
    <dl className="memory-bars">
      {memory.map((held) => (
        <div key={held.kind}>
          <dt>{NAMES[held.kind] ?? held.kind}</dt>
          <dd>
            <Bar held={held} most={most} />
            <span className="number">{held.measured ? formatRange(held.measured) : "not measured yet"}</span>{" "}
            {held.planned !== null && <span className="quiet number">planned {bytes(held.planned)} </span>}
            <span className="quiet number">{held.formula ? `formula ${formatRange(held.formula)} = ${held.formula.words}` : held.reason !== reason && held.reason}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** A least and a most that read the same are one number. */
function formatRange({ low, high }: Range): string {
  const [from, to] = [bytes(low), bytes(high)];
  return from === to ? to : `${from} – ${to}`;
}

const HEIGHT = 14;

function Bar({ held: { measured, formula }, most }: { held: Held; most: number }) {
  const x = (value: number) => (value / most) * 100;
  return (
    <svg className="memory-bar" aria-hidden="true" viewBox={`0 0 100 ${HEIGHT}`} preserveAspectRatio="none">
      <rect className="track" width={100} height={HEIGHT} />
      {measured && <rect className="most" width={x(measured.high)} height={HEIGHT} />}
      {measured && <rect className="least" width={x(measured.low)} height={HEIGHT} />}
      {formula && formula.high > formula.low && <rect className="band" x={x(formula.low)} width={x(formula.high - formula.low)} height={HEIGHT} />}
      {formula && <line x1={x(formula.low)} x2={x(formula.low)} y1={0} y2={HEIGHT} />}
      {formula && formula.high > formula.low && <line x1={x(formula.high)} x2={x(formula.high)} y1={0} y2={HEIGHT} />}
    </svg>
  );
}
