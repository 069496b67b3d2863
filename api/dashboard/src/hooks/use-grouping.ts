/** By what the list of jobs is grouped, as the address has it; empty: by nothing. */

import { useSearchParams } from "wouter";
import { type Grouping, groupingOf } from "../model/job-groups";

const NAME = "group";

export function useGrouping(): [Grouping, (by: Grouping) => void] {
  const [params, setParams] = useSearchParams();
  const change = (by: Grouping) => {
    setParams((known) => {
      const next = new URLSearchParams(known);
      if (by === "") next.delete(NAME);
      else next.set(NAME, by);
      return next;
    }, { replace: true });
  };
  return [groupingOf(params.get(NAME) ?? ""), change];
}
