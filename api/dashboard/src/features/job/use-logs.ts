/** A job's newest log lines, kept up to date by asking for what comes after the last one. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { continueLogs, type LogEnd } from "../../api/logs";
import { untilRead } from "../../api/retrying";
import { useOnceEnded } from "../../hooks/use-once-ended";

const EVERY_MS = 1000;

export interface Tail extends LogEnd {
  problem: Error | null;
  loading: boolean;
}

/** `ended`: the job writes nothing more, so asking stops, after a last time that was answered. */
export function useLogs(id: string, rank: number | null, ended: boolean): Tail {
  const client = useQueryClient();
  const key = ["logs", id, rank];
  const { data, error, isPending, refetch } = useQuery<LogEnd>({
    queryKey: key,
    queryFn: ({ signal }) => continueLogs(id, rank, client.getQueryData<LogEnd>(key), signal),
    structuralSharing: false,
    refetchInterval: ended ? untilRead : EVERY_MS,
  });
  useOnceEnded(ended, refetch);
  return { lines: data?.lines ?? [], earlier: data?.earlier ?? false, removed: data?.removed ?? 0, problem: error, loading: isPending };
}
