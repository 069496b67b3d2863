/** Who created and deleted versions of a model, and moved its aliases; a page at a time. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { type Change, listChanges } from "../../api/models";
import { ProblemNotice } from "../../components/problem-notice";
import { TimeAgo } from "../../components/time-ago";

export function ModelHistory({ model, now }: { model: string; now: Date }) {
  const query = useInfiniteQuery({
    queryKey: ["model", model, "history"],
    queryFn: ({ pageParam, signal }) => listChanges(model, pageParam, signal),
    initialPageParam: null as number | null,
    getNextPageParam: ({ next }) => next,
  });
  const changes = query.data?.pages.flatMap((page) => page.changes) ?? [];
  return (
    <section className="card" aria-labelledby="model-history-title">
      <div className="card-head"><h2 id="model-history-title">History</h2></div>
      {query.error && <ProblemNotice problem={query.error} />}
      <ul className="pad">
        {changes.map((one) => <li key={one.position}>{said(one)} <span className="quiet">by {one.actor}, <TimeAgo at={one.at} now={now} /></span></li>)}
      </ul>
      {query.hasNextPage && (
        <div className="pad">
          <button className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Earlier changes</button>
        </div>
      )}
    </section>
  );
}

function said({ kind, version, alias, before }: Change): string {
  if (kind === "alias_set") return `${alias ?? ""} set to version ${version}${before === null ? "" : `, before ${before}`}`;
  if (kind === "alias_removed") return `${alias ?? ""} removed from version ${version}`;
  return `Version ${version} ${kind === "version_deleted" ? "deleted" : "created"}`;
}
