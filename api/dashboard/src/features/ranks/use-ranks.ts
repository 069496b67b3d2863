/** The sample of a job's ranks that is shown: the newest, from the job's stream, or an earlier one, which is fetched. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRanks, type RankSample } from "../../api/ranks";
import { useDebounced } from "../../hooks/use-debounced";

export interface Ranks {
  sample: RankSample | null;
  /** Places of the oldest and the newest sample. */
  first: number | null;
  last: number | null;
  problem: Error | null;
}

/** Samples are dropped from the cache soon: a slider passes over many. */
const KEPT_MS = 60_000;

/** `at`: the position of the sample; null: the newest. */
export function useRanks(id: string, newest: RankSample | null, at: number | null): Ranks {
  const settled = useDebounced(at === null ? "" : String(at));
  const place = at === null || settled === "" ? null : Number(settled);
  const begun = newest !== null; // fetched once more with the first sample, for the position of the oldest
  const start = useQuery({
    queryKey: ["ranks", id, "newest", begun],
    queryFn: ({ signal }) => getRanks(id, null, signal),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });
  const past = useQuery({
    queryKey: ["ranks", id, "past", place],
    queryFn: ({ signal }) => getRanks(id, place, signal),
    enabled: place !== null,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: KEPT_MS,
  });
  const known = start.data?.sample ?? null;
  const latest = newest && (!known || newest.position >= known.position) ? newest : known;
  return {
    sample: at === null ? latest : (past.data?.sample ?? latest),
    first: start.data?.first ?? latest?.position ?? null,
    last: latest?.position ?? null,
    problem: at === null ? start.error : past.error,
  };
}
