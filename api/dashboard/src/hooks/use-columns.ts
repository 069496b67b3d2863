/** The chosen columns of the table of jobs and its order by one of them: in the address, else as this browser had them last.
 *
 * An order that the API has is the parameter `sort`; one of the loaded jobs alone is `by`.
 */

import { useSearchParams } from "wouter";
import { orderedBy, sortOf } from "../model/job-columns";
import { keep, readKept } from "./browser-storage";

const KEY = "shardyard.job-columns";

export interface Columns {
  columns: readonly string[];
  /** A column's path, with `-` before it for the largest first; empty: the order has no column. */
  by: string;
  /** It is an order of the loaded jobs alone. */
  local: boolean;
  change: (columns: readonly string[], by: string) => void;
}

export function useColumns(): Columns {
  const [params, setParams] = useSearchParams();
  const columns = (params.get("columns") ?? readKept(KEY) ?? "").split(",").filter((path) => path !== "");
  const change = (chosen: readonly string[], by: string) => {
    keep(KEY, chosen.join(","));
    setParams((known) => {
      const kept = new URLSearchParams(known);
      kept.set("columns", chosen.join(","));
      const sort = sortOf(by);
      kept.delete("by");
      if (sort !== null) kept.set("sort", sort);
      else if (by !== "") kept.set("by", by);
      else if (orderedBy(kept.get("sort") ?? "") !== "") kept.delete("sort");
      return kept;
    }, { replace: true });
  };
  const own = params.get("by") ?? "";
  const local = columns.includes(own.replace(/^-/, "")) && sortOf(own) === null;
  return { columns, by: local ? own : orderedBy(params.get("sort") ?? ""), local, change };
}
