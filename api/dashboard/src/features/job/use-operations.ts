/** The operations on a job's checkpoints, and the requests that start them. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { newKey } from "../../api/idempotency-key";
import { type Dtype, exportCheckpoint, listOperations, pinCheckpoint, verifyCheckpoint } from "../../api/operations";
import { untilRead } from "../../api/retrying";
import { isOpen } from "../../model/operations";

const BUSY_MS = 1000;
const POLL_MS = 10_000;

/** Others may start some too, as long as the job has not ended. After its end the page polls only while one is open. */
export function useOperations(job: string, ended: boolean) {
  return useQuery({
    queryKey: ["operations", job],
    queryFn: ({ signal }) => listOperations(job, signal),
    refetchInterval: (query) => (query.state.data?.some(isOpen) ? BUSY_MS : ended ? untilRead(query) : POLL_MS),
  });
}

export function useVerify(job: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (position: number) => verifyCheckpoint(job, position, newKey("verify")),
    onSettled: () => client.invalidateQueries({ queryKey: ["operations", job] }),
  });
}

export function usePin(job: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ position, pinned }: { position: number; pinned: boolean }) => pinCheckpoint(job, position, pinned, newKey("pin")),
    onSettled: () => client.invalidateQueries({ queryKey: ["operations", job] }),
  });
}

export function useExport(job: string, position: number, onStarted: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (dtype: Dtype) => exportCheckpoint(job, position, dtype, newKey("export")),
    onSuccess: onStarted,
    onSettled: () => client.invalidateQueries({ queryKey: ["operations", job] }),
  });
}
