/** How far back a tab of the cluster's page looks, and at which machine: both are in its address. */

import { useSearchParams } from "wouter";
import { type Range, RANGES } from "../../api/cluster";

const NAMES: Readonly<Record<Range, string>> = { hour: "Last hour", day: "Last day", week: "Last week" };

export interface ClusterView {
  range: Range;
  /** The id of a machine; null: all. */
  node: string | null;
  change: (changes: { range?: Range; node?: string | null }) => void;
}

export function useClusterView(): ClusterView {
  const [params, setParams] = useSearchParams();
  const range = RANGES.find((one) => one === params.get("range")) ?? "hour";
  const change = (changes: { range?: Range; node?: string | null }) => {
    setParams((known) => {
      const next = new URLSearchParams(known);
      for (const [name, value] of Object.entries(changes)) {
        if (value === null) next.delete(name);
        else next.set(name, value);
      }
      return next;
    });
  };
  return { range, node: params.get("node"), change };
}

export function RangeChoice({ range, change }: Pick<ClusterView, "range" | "change">) {
  return (
    <label>
      <span className="unseen">Range</span>
      <select value={range} onChange={(event) => { change({ range: event.target.value as Range }); }}>
        {RANGES.map((one) => <option key={one} value={one}>{NAMES[one]}</option>)}
      </select>
    </label>
  );
}
