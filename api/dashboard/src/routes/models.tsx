/** `/models`: the models that have versions, by name. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { listModels } from "../api/models";
import { Empty } from "../components/empty";
import { ProblemNotice } from "../components/problem-notice";
import { ModelTable } from "../features/models/model-table";
import { useNow } from "../hooks/use-now";
import { useTitle } from "../hooks/use-title";

export function ModelsPage() {
  useTitle("Models");
  const now = useNow();
  const query = useInfiniteQuery({
    queryKey: ["models"],
    queryFn: ({ pageParam, signal }) => listModels(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
  const models = query.data?.pages.flatMap((page) => page.models) ?? [];
  return (
    <main className="page" aria-busy={query.isPending}>
      <div className="page-head">
        <h1>Models</h1>
        <p className="quiet">Checkpoints and files of jobs, kept as numbered versions</p>
      </div>
      {query.error && <ProblemNotice problem={query.error} stale={models.length > 0} />}
      {query.isLoading && <p className="quiet">Loading models…</p>}
      {models.length > 0 && <ModelTable models={models} now={now} />}
      {query.isSuccess && models.length === 0 && (
        <Empty title="No models yet">
          <p>Name a checkpoint in the tab Checkpoints of a job, or in a terminal:</p>
          <pre>shardyard models NAME --create JOB@STEP</pre>
        </Empty>
      )}
      {query.hasNextPage && <button className="button load-more" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>More</button>}
    </main>
  );
}
