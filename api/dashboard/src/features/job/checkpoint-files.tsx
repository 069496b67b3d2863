/** The files of one checkpoint, each with a link that downloads it; a page at a time. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { type Checkpoint, listCheckpointFiles } from "../../api/checkpoints";
import { isUnreached } from "../../api/http";
import type { Job } from "../../api/jobs";
import { untilReached } from "../../api/retrying";
import { CopyableText } from "../../components/copyable-text";
import { ProblemNotice } from "../../components/problem-notice";
import { bytes, integer } from "../../model/format";

export function CheckpointFiles({ job, checkpoint: { step }, onClose }: { job: Job; checkpoint: Checkpoint; onClose: () => void }) {
  const query = useInfiniteQuery({
    queryKey: ["checkpoint-files", job.id, step],
    queryFn: ({ pageParam, signal }) => listCheckpointFiles(job.id, step, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
    // One that answers has asked storage again itself.
    retry: (count, error) => count < 1 && isUnreached(error),
    refetchInterval: untilReached,
  });
  const files = query.data?.pages.flatMap((page) => page.files) ?? [];
  return (
    <section className="plain-table card" aria-labelledby="checkpoint-files-title" tabIndex={0}>
      <div className="card-head">
        <h2 id="checkpoint-files-title">Files of step {integer(step)}</h2>
        <button className="button small" onClick={onClose}>Close</button>
      </div>
      {query.error && <ProblemNotice problem={query.error} />}
      {query.isLoading && <p className="pad quiet">Loading the files…</p>}
      {files.length > 0 && (
        <table>
          <thead>
            <tr><th scope="col">Path</th><th scope="col" className="right">Size</th><th scope="col"><span className="unseen">Actions</span></th></tr>
          </thead>
          <tbody>
            {files.map((file) => (
              <tr key={file.path}>
                <th scope="row"><code>{file.path}</code></th>
                <td className="right number">{bytes(file.bytes)}</td>
                <td className="right"><a className="button small" href={file.address} download aria-label={`Download ${file.path}`}>Download</a></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {query.hasNextPage && (
        <div className="pad">
          <button className="button" disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>More files</button>
        </div>
      )}
      <div className="pad">
        <p className="quiet">All of them, compared with their checksums:</p>
        <CopyableText label="Command" text={`shardyard checkpoints ${job.id} --download ${step}`} />
      </div>
    </section>
  );
}
