/** What a job's program logged as files: images by name with their steps, tables on request, all for download; a page at a time, and images to their end. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { memo, useEffect, useState } from "react";
import { type Artifact, listArtifacts } from "../../api/artifacts";
import type { Job } from "../../api/jobs";
import { untilRead } from "../../api/retrying";
import { ProblemNotice } from "../../components/problem-notice";
import { useOnceEnded } from "../../hooks/use-once-ended";
import { bytes, integer } from "../../model/format";
import { isFinal } from "../../model/jobs";
import { ImageStrip } from "./image-strip";
import { TableStart } from "./table-start";
import "./job-files.css";

const AT_ONCE = 200;
/** Images of a job may have no end: from here on more are read on request. */
const MOST = 2000;
const EVERY_MS = 5000;

export function JobFiles({ job }: { job: Job }) {
  const [shown, show] = useState<string | null>(null);
  const ended = isFinal(job.state);
  const { refetch, ...query } = useInfiniteQuery({
    queryKey: ["artifacts", job.id],
    queryFn: ({ pageParam, signal }) => listArtifacts(job.id, pageParam, AT_ONCE, signal),
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
    // All pages are read again: the more of them, the more rarely.
    refetchInterval: (query) => (ended ? untilRead(query) : EVERY_MS * (query.state.data?.pages.length ?? 1)),
  });
  useOnceEnded(ended, refetch);
  const files = query.data?.pages.flatMap((page) => page.artifacts) ?? [];
  const images = byName(files.filter((file) => file.shown));
  // Files are in order of name and step: where the last one is an image, later steps of it may be on the next page.
  const { data, hasNextPage, isFetching, error, fetchNextPage } = query;
  const last = files.at(-1);
  const cut = hasNextPage && last?.shown === true ? last.name : null;
  const stops = files.length >= MOST || error !== null;
  const readsOn = cut !== null && !stops && !isFetching;
  useEffect(() => {
    if (readsOn) void fetchNextPage();
  }, [readsOn, fetchNextPage, data]);
  const more = { busy: query.isFetchingNextPage, onMore: () => void fetchNextPage() };
  const table = files.find((file) => file.address === shown);
  return (
    <div className="stack">
      {images.size > 0 && (
        <section className="card" aria-labelledby="images-title">
          <div className="card-head"><h2 id="images-title">Images</h2></div>
          <div className="image-strips">{[...images].map(([name, steps]) => <ImageStrip key={name} name={name} images={steps} more={stops && name === cut ? more : null} />)}</div>
        </section>
      )}
      {table && <TableStart key={table.address} table={table} onClose={() => { show(null); }} />}
      <section className="plain-table card" aria-labelledby="files-title" tabIndex={0}>
        <div className="card-head"><h2 id="files-title">Files</h2></div>
        {error && <ProblemNotice problem={error} />}
        {query.data && files.length === 0 && <p className="pad quiet">No files yet. A program logs them with shardyard.log_artifact, log_image and log_table.</p>}
        {files.length > 0 && <FileTable files={files} onShow={show} />}
        {hasNextPage && (
          <div className="pad">
            <button className="button" disabled={more.busy} onClick={more.onMore}>More files</button>
          </div>
        )}
      </section>
    </div>
  );
}

function FileTable({ files, onShow }: { files: readonly Artifact[]; onShow: (address: string) => void }) {
  return (
    <table>
      <thead>
        <tr><th scope="col">Name</th><th scope="col">Step</th><th scope="col">Size</th><th scope="col">Rank</th><th scope="col"><span className="unseen">Actions</span></th></tr>
      </thead>
      <tbody>
        {files.map((file) => <FileRow key={file.address} file={file} onShow={onShow} />)}
      </tbody>
    </table>
  );
}

/** A page more renders its own rows alone. */
const FileRow = memo(function FileRow({ file, onShow }: { file: Artifact; onShow: (address: string) => void }) {
  return (
    <tr>
      <td className="file-name">{file.name}</td>
      <td>{file.step === null ? "–" : integer(file.step)}</td>
      <td>{bytes(file.bytes)}</td>
      <td>{file.rank}</td>
      <td>
        {file.type === "table" && <><button className="button" aria-label={`Show ${called(file)}`} onClick={() => { onShow(file.address); }}>Show</button> </>}
        <a className="button" href={file.address} download aria-label={`Download ${called(file)}`}>Download</a>
      </td>
    </tr>
  );
});

function byName(files: readonly Artifact[]): ReadonlyMap<string, Artifact[]> {
  const found = new Map<string, Artifact[]>();
  for (const file of files) {
    const others = found.get(file.name);
    if (others === undefined) found.set(file.name, [file]);
    else others.push(file);
  }
  return found;
}

const called = ({ name, step }: Artifact) => (step === null ? name : `${name}, step ${integer(step)}`);
