/** A job's traces, and one step of one of them. */

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { newKey } from "../../api/idempotency-key";
import { startTrace, getSpans, getTrace, listTraces, type Stretch, type Trace } from "../../api/traces";

const STEPS = 3;
const RECORDING_MS = 700;
const POLL_MS = 5000;
const SETTLED_MS = 250;

/** Others may start traces too, as long as the job has not ended. */
export function useTraces(job: string, ended: boolean) {
  return useQuery({
    queryKey: ["traces", job],
    queryFn: ({ signal }) => listTraces(job, signal),
    refetchInterval: ({ state }) => (state.data?.[0]?.state === "open" ? RECORDING_MS : ended ? false : POLL_MS),
  });
}

export function useStartTrace(job: string, onStarted: (trace: Trace) => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => startTrace(job, STEPS, newKey("trace")),
    onSuccess: onStarted,
    onSettled: () => client.invalidateQueries({ queryKey: ["traces", job] }),
  });
}

/** Of a step, or means over all of them. `version`: the number of parts, so that later parts are fetched. */
export function useSummary(job: string, trace: string, version: number, step: number | null) {
  return useQuery({
    queryKey: ["trace", job, trace, version, step],
    queryFn: ({ signal }) => getTrace(job, trace, step, signal),
    placeholderData: keepPreviousData,
  });
}

/** The whole step, and what is in view once that stands still; the whole is enough where nothing was left out of it. */
export function useSpans(job: string, trace: string, step: number) {
  const [stretch, onStretch] = useSettledStretch();
  const ask = (part: Stretch, enabled: boolean) => ({
    queryKey: ["spans", job, trace, step, part],
    queryFn: ({ signal }: { signal: AbortSignal }) => getSpans(job, trace, step, part, signal),
    staleTime: Infinity,
    enabled,
  });
  const whole = useQuery(ask(null, true));
  const closer = stretch !== null && (whole.data?.dropped ?? 0) > 0;
  const detail = useQuery({ ...ask(stretch, closer), placeholderData: keepPreviousData, gcTime: 10_000 });
  return { whole, detail: closer ? (detail.data ?? null) : null, onStretch };
}

function useSettledStretch(): [Stretch, (stretch: Stretch) => void] {
  const [stretch, setStretch] = useState<Stretch>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => { clearTimeout(timer.current); }, []);
  const settle = useCallback((next: Stretch) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { setStretch(next); }, SETTLED_MS);
  }, []);
  return [stretch, settle];
}
