/** The newest plan of a job's gang. It is read once, and again where the job's stream has another or has missed one. */

import { type QueryClient, useQuery } from "@tanstack/react-query";
import type { Plan } from "../../api/events";
import { getPlan } from "../../api/plan";

const keyOf = (id: string) => ["plan", id];

export function usePlan(id: string): Plan | null {
  const { data } = useQuery({ queryKey: keyOf(id), queryFn: ({ signal }) => getPlan(id, signal), staleTime: Infinity });
  return data ?? null;
}

/** `plan`: one of the stream, which is shown until the newest is read. */
export function renewPlan(client: QueryClient, id: string, plan?: Plan): void {
  if (plan) client.setQueryData(keyOf(id), plan);
  void client.invalidateQueries({ queryKey: keyOf(id) });
}
