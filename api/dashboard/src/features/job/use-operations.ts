/** What was asked of a job's checkpoints, as it changes, and asking for more. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { newKey } from "../../api/idempotency-key";
import { type Dtype, exportCheckpoint, listOperations, verifyCheckpoint } from "../../api/operations";
import { isOpen } from "../../model/operations";

const BUSY_MS = 1000;
const POLL_MS = 10_000;

/** Others may ask, too, as long as the job has not ended; afterwards the page looks again only while something is open. */
export function useOperations(job: string, ended: boolean) {
  return useQuery({
    queryKey: ["operations", job],
    queryFn: ({ signal }) => listOperations(job, signal),
    refetchInterval: ({ state }) => (state.data?.some(isOpen) ? BUSY_MS : ended ? false : POLL_MS),
  });
}

export function useVerify(job: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (n: number) => verifyCheckpoint(job, n, newKey("verify")),
    onSettled: () => client.invalidateQueries({ queryKey: ["operations", job] }),
  });
}

export function useExport(job: string, n: number, onAsked: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (dtype: Dtype) => exportCheckpoint(job, n, dtype, newKey("export")),
    onSuccess: onAsked,
    onSettled: () => client.invalidateQueries({ queryKey: ["operations", job] }),
  });
}
