/** `/models/:name`: one model with its versions, aliases and history. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { getModel, listVersions, type Model, type Version } from "../api/models";
import { untilRead } from "../api/retrying";
import { ProblemNotice } from "../components/problem-notice";
import { AliasList } from "../features/models/alias-list";
import { DeleteVersion } from "../features/models/delete-version";
import { ModelHistory } from "../features/models/model-history";
import { SetAlias } from "../features/models/set-alias";
import { VersionTable } from "../features/models/version-table";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";

/** While a version is not pinned yet. */
const BUSY_MS = 2000;

export function ModelPage({ name }: { name: string }) {
  useTitle(name);
  const query = useQuery({ queryKey: ["model", name], queryFn: ({ signal }) => getModel(name, signal) });
  return (
    <main className="page">
      <nav aria-label="Breadcrumb" className="breadcrumb">
        <Link href="/models">Models</Link> <span aria-hidden="true">/</span> {name}
      </nav>
      <h1 className="before">{name}</h1>
      {query.error && <ProblemNotice problem={query.error} stale={query.data !== undefined} />}
      {query.isLoading && <p className="quiet">Loading the model…</p>}
      {query.data && <ModelView model={query.data} />}
    </main>
  );
}

function ModelView({ model }: { model: Model }) {
  const now = useNow();
  const [named, name] = useState<Version | null>(null);
  const [deleted, toDelete] = useState<Version | null>(null);
  const query = useInfiniteQuery({
    queryKey: ["model", model.name, "versions"],
    queryFn: ({ pageParam, signal }) => listVersions(model.name, pageParam, signal),
    initialPageParam: null as number | null,
    getNextPageParam: ({ next }) => next,
    refetchInterval: (query) => (query.state.data?.pages.some(({ versions }) => versions.some(isPending)) ? BUSY_MS : untilRead(query)),
  });
  const versions = query.data?.pages.flatMap((page) => page.versions) ?? [];
  return (
    <div className="stack">
      {query.error && <ProblemNotice problem={query.error} stale={query.data !== undefined} />}
      {query.isSuccess && versions.length === 0 && <p className="quiet">All versions were deleted.</p>}
      {versions.length > 0 && <VersionTable versions={versions} now={now} onAlias={name} onDelete={toDelete} />}
      {query.hasNextPage && <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Older versions</button>}
      <AliasList model={model} now={now} />
      <ModelHistory model={model.name} now={now} />
      {named && <SetAlias model={model} version={named} onDone={() => { name(null); }} />}
      {deleted && <DeleteVersion version={deleted} onDone={() => { toDelete(null); }} />}
    </div>
  );
}

const isPending = ({ state, pinned }: Version) => state === "present" && !pinned;
