/** What a rank sends in a step, by mesh axis and collective, beside the formula. */

import type { Flow } from "../../api/resources";
import { bytes, integer } from "../../model/format";
import "./job.css";

export function TrafficTable({ traffic }: { traffic: readonly Flow[] }) {
  const most = Math.max(1, ...traffic.map((flow) => flow.bytes ?? flow.formula?.bytes ?? 0));
  return (
    <section className="plain-table traffic-table" aria-label="Bytes moved" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Axis</th>
            <th scope="col">Collective</th>
            <th scope="col" className="right">Calls</th>
            <th scope="col" className="right">Bytes per step</th>
            <th scope="col" className="wide"><span className="unseen">As a bar</span></th>
            <th scope="col">Formula</th>
            <th scope="col" className="right">Measured ÷ formula</th>
          </tr>
        </thead>
        <tbody>{traffic.map((flow) => <Row key={`${flow.axis} ${flow.collective}`} flow={flow} most={most} />)}</tbody>
      </table>
    </section>
  );
}

function Row({ flow: { axis, collective, calls, bytes: moved, formula, ratio, reason }, most }: { flow: Flow; most: number }) {
  return (
    <tr>
      <th scope="row">{axis}</th>
      <td>{collective}</td>
      <td className="right number">{integer(calls)}</td>
      <td className="right number">{bytes(moved)}</td>
      <td className="wide">
        <svg aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">
          <rect width={((moved ?? 0) / most) * 100} height={10} />
          {formula && <line x1={(formula.bytes / most) * 100} x2={(formula.bytes / most) * 100} y1={0} y2={10} />}
        </svg>
      </td>
      <td className="quiet number">{formula ? `${bytes(formula.bytes)} = ${formula.words}` : reason}</td>
      <td className="right number">{ratio === null ? "–" : ratio.toFixed(3)}</td>
    </tr>
  );
}
