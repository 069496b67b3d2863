/** The chosen columns of the table of jobs and its order by one of them: in the address, else as this browser had them last. */

import { useSearchParams } from "wouter";

const KEY = "shardyard.job-columns";

export interface Columns {
  columns: readonly string[];
  /** A column's path, with `-` before it for the largest first; empty: the order of the filter. */
  by: string;
  change: (columns: readonly string[], by: string) => void;
}

export function useColumns(): Columns {
  const [params, setParams] = useSearchParams();
  const columns = (params.get("columns") ?? localStorage.getItem(KEY) ?? "").split(",").filter((path) => path !== "");
  const change = (chosen: readonly string[], by: string) => {
    localStorage.setItem(KEY, chosen.join(","));
    setParams((known) => {
      const kept = new URLSearchParams(known);
      kept.set("columns", chosen.join(","));
      if (by === "") kept.delete("by");
      else kept.set("by", by);
      return kept;
    }, { replace: true });
  };
  const by = params.get("by") ?? "";
  return { columns, by: columns.includes(by.replace(/^-/, "")) ? by : "", change };
}
