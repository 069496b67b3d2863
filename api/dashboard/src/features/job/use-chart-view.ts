/** The settings of a job's charts. They are in the address, so that they can be shared. */

import { useCallback, useEffect, useState } from "react";
import { useSearchParams } from "wouter";
import { useDebounced } from "../../hooks/use-debounced";
import { type ChartView, NAMES, read, write } from "../../model/chart-view";

export function useChartView(): [ChartView, (changes: Partial<ChartView>) => void] {
  const [params, setParams] = useSearchParams();
  const [view, setView] = useState(() => read(params));
  // Written once it is stable: browsers limit changes of the address per second, and a slider makes many.
  const settled = useDebounced(write(view).toString());
  useEffect(() => {
    setParams((known) => {
      const next = new URLSearchParams(known);
      const wanted = new URLSearchParams(settled);
      for (const name of NAMES) {
        const value = wanted.get(name);
        if (value === null) next.delete(name);
        else next.set(name, value);
      }
      return next;
    }, { replace: true });
  }, [settled, setParams]);
  const change = useCallback((changes: Partial<ChartView>) => { setView((known) => ({ ...known, ...changes })); }, []);
  return [view, change];
}
