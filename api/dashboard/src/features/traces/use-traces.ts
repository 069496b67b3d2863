/** A job's traces, and one step of one of them. */

import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { newKey } from "../../api/idempotency-key";
import { untilRead } from "../../api/retrying";
import { startTrace, getSpans, getTrace, listTraces, type TimeRange, type Trace } from "../../api/traces";

const STEPS = 3;
const RECORDING_MS = 700;
const POLL_MS = 5000;
const SETTLED_MS = 250;

/** Others may start traces too, as long as the job has not ended. */
export function useTraces(job: string, ended: boolean) {
  return useQuery({
    queryKey: ["traces", job],
    queryFn: ({ signal }) => listTraces(job, signal),
    refetchInterval: (query) => (query.state.data?.[0]?.state === "open" ? RECORDING_MS : ended ? untilRead(query) : POLL_MS),
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

/** The whole step, and the range in view once it is stable. The range is fetched only if spans of the step were left out. */
export function useSpans(job: string, trace: string, step: number) {
  const [range, onRange] = useDebouncedRange();
  const query = (part: TimeRange, enabled: boolean) => ({
    queryKey: ["spans", job, trace, step, part],
    queryFn: ({ signal }: { signal: AbortSignal }) => getSpans(job, trace, step, part, signal),
    staleTime: Infinity,
    enabled,
  });
  const whole = useQuery(query(null, true));
  const closer = range !== null && (whole.data?.dropped ?? 0) > 0;
  const detail = useQuery({ ...query(range, closer), placeholderData: keepPreviousData, gcTime: 10_000 });
  return { whole, detail: closer ? (detail.data ?? null) : null, onRange };
}

function useDebouncedRange(): [TimeRange, (range: TimeRange) => void] {
  const [range, setRange] = useState<TimeRange>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => { clearTimeout(timer.current); }, []);
  const settle = useCallback((next: TimeRange) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { setRange(next); }, SETTLED_MS);
  }, []);
  return [range, settle];
}
