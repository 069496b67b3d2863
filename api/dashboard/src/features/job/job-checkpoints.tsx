/** A job's checkpoints, a page at a time. A new job can resume from each, on any layout; each can be downloaded, pinned, named and verified, and those of a training job exported. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Checkpoint, listCheckpoints } from "../../api/checkpoints";
import type { Job } from "../../api/jobs";
import { untilRead } from "../../api/retrying";
import { ProblemNotice } from "../../components/problem-notice";
import { useNow } from "../../hooks/use-now";
import { useOnceEnded } from "../../hooks/use-once-ended";
import { trains } from "../../model/checkpoints";
import { isFinal } from "../../model/jobs";
import { isOpen } from "../../model/operations";
import { CheckpointFiles } from "./checkpoint-files";
import { CheckpointTable } from "./checkpoint-table";
import { ExportCheckpoint } from "./export-checkpoint";
import { NameVersion } from "./name-version";
import { useOperations, usePin, useVerify } from "./use-operations";

const AT_ONCE = 10;
const EVERY_MS = 4000;

export function JobCheckpoints({ job }: { job: Job }) {
  const now = useNow();
  const [exported, toExport] = useState<Checkpoint | null>(null);
  const [listed, list] = useState<Checkpoint | null>(null);
  const [named, name] = useState<Checkpoint | null>(null);
  const operations = useOperations(job.id, isFinal(job.state));
  const verify = useVerify(job.id);
  const pin = usePin(job.id);
  const { refetch, ...query } = useInfiniteQuery({
    queryKey: ["checkpoints", job.id],
    queryFn: ({ pageParam, signal }) => listCheckpoints(job.id, pageParam, AT_ONCE, signal),
    initialPageParam: null as number | null,
    getNextPageParam: ({ next }) => next,
    // All pages are read again: the more of them, the more rarely.
    refetchInterval: (query) => (isFinal(job.state) ? untilRead(query) : EVERY_MS * (query.state.data?.pages.length ?? 1)),
  });
  useOnceEnded(isFinal(job.state), refetch);
  // What a verification or an export found is the checkpoint's state from then on.
  const settled = operations.data?.filter((one) => !isOpen(one)).length ?? 0;
  useEffect(() => {
    if (settled > 0) void refetch();
  }, [settled, refetch]);
  const checkpoints = query.data?.pages.flatMap((page) => page.checkpoints) ?? [];
  return (
    <div className="stack">
      {listed && <CheckpointFiles key={listed.step} job={job} checkpoint={listed} onClose={() => { list(null); }} />}
      <section className="plain-table card" aria-labelledby="checkpoints-title" tabIndex={0}>
        <div className="card-head"><h2 id="checkpoints-title">Checkpoints</h2></div>
        {query.error && <ProblemNotice problem={query.error} />}
        {verify.error && <ProblemNotice problem={verify.error} />}
        {pin.error && <ProblemNotice problem={pin.error} />}
        {query.data && checkpoints.length === 0 && <p className="pad quiet">No checkpoints yet. {trains(job) ? "See train.checkpoint.every in the spec." : "The program saves them with shardyard.checkpoint."}</p>}
        {checkpoints.length > 0 && (
          <CheckpointTable
            job={job.id}
            checkpoints={checkpoints}
            operations={operations.data ?? []}
            now={now}
            onVerify={({ position }) => { verify.mutate(position); }}
            onFiles={list}
            onName={name}
            onPin={({ position, pinned }) => { pin.mutate({ position, pinned: !pinned }); }}
            onExport={trains(job) ? toExport : null}
          />
        )}
        {query.hasNextPage && (
          <div className="pad">
            <button className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Earlier checkpoints</button>
          </div>
        )}
        {exported && <ExportCheckpoint job={job} checkpoint={exported} onDone={() => { toExport(null); }} />}
        {named && <NameVersion job={job} checkpoint={named} onDone={() => { name(null); }} />}
      </section>
    </div>
  );
}
