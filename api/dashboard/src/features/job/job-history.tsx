/** A job's history: live, and back to its first entry, a page at a time. Only the page that is shown is kept. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Entry } from "../../api/events";
import { listHistory } from "../../api/history";
import { ProblemNotice } from "../../components/problem-notice";
import { positionOf } from "../../model/live";
import { History } from "./history";

const AT_ONCE = 50;

/** `live`: the newest entries, which the stream adds to. */
export function JobHistory({ id, live }: { id: string; live: readonly Entry[] }) {
  const [before, goTo] = useState<number | null>(null);
  const { data, error, isFetching } = useQuery({
    queryKey: ["history", id, before],
    queryFn: ({ signal }) => listHistory(id, before ?? Number.MAX_SAFE_INTEGER, AT_ONCE, signal),
    enabled: before !== null,
    placeholderData: keepPreviousData,
    staleTime: Infinity, // what has happened stays as it is
    gcTime: 0,
  });
  const older = before === null ? undefined : data;
  const entries = older?.entries ?? live;
  const next = before === null ? beforeThe(live[0]) : (data?.next ?? null);
  return (
    <History entries={entries} until={older?.entries.at(-1)?.at ?? null}>
      {error && before !== null && <ProblemNotice problem={error} />}
      <div className="history-pages">
        {next !== null && <button className="button small" disabled={isFetching} onClick={() => { goTo(next); }}>Older</button>}
        {before !== null && <button className="button small" onClick={() => { goTo(null); }}>Newest</button>}
      </div>
    </History>
  );
}

/** The position before which the next page begins; null at a job's first entry. */
const beforeThe = (oldest: Entry | undefined) => {
  const place = oldest === undefined ? Number.MAX_SAFE_INTEGER : positionOf(oldest);
  return place > 1 ? place : null;
};
