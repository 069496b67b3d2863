/** The choice of the axis along which runs are compared. */

import { AXES, type Axis } from "../../model/runs";
import "./compare.css";

export function AxisChoice({ axis, onAxis }: { axis: Axis; onAxis: (axis: Axis) => void }) {
  return (
    <fieldset className="by">
      <legend className="unseen">Along</legend>
      {AXES.map((each) => (
        <label key={each}>
          <input type="radio" name="by" checked={each === axis} onChange={() => { onAxis(each); }} /> by {each}
        </label>
      ))}
    </fieldset>
  );
}
