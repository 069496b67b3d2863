/** What is done with the lines of a log: wrap them, download them, show them on the full screen. */

import { type RefObject, useEffect, useRef, useState } from "react";
import type { Job } from "../../api/jobs";
import type { LogQuery } from "../../api/log-search";
import { save } from "../../components/chart-files";
import { fileName } from "../../model/csv";
import { downloadLog } from "./log-download";

export interface LogToolsProps {
  job: Job;
  query: LogQuery;
  wrap: boolean;
  onWrap: (wrap: boolean) => void;
  /** What fills the screen. */
  box: RefObject<HTMLElement | null>;
}

export function LogTools({ job, query, wrap, onWrap, box }: LogToolsProps) {
  return (
    <span className="log-tools">
      <label className="log-wrap"><input type="checkbox" checked={wrap} onChange={(event) => { onWrap(event.target.checked); }} /> Wrap</label>
      <Download job={job} query={query} />
      <FullScreen box={box} />
    </span>
  );
}

function Download({ job, query }: { job: Job; query: LogQuery }) {
  const running = useRef<AbortController>(null);
  const [state, setState] = useState<{ busy: boolean; words: string }>({ busy: false, words: "" });
  useEffect(() => () => { running.current?.abort(); }, []);
  const start = async () => {
    const controller = new AbortController();
    running.current = controller;
    setState({ busy: true, words: "" });
    try {
      const { file, lines, cut } = await downloadLog(job.id, query, (count) => { setState({ busy: true, words: counted(count) }); }, controller.signal);
      save(`${fileName(job.name, "log")}.txt`, file);
      setState({ busy: false, words: cut ? `${counted(lines)}, which is not all: filter for fewer` : counted(lines) });
    } catch (error) {
      if (!controller.signal.aborted) setState({ busy: false, words: error instanceof Error ? error.message : "The download failed." });
    }
  };
  const stop = () => {
    running.current?.abort();
    setState({ busy: false, words: "" });
  };
  return (
    <>
      <span className="quiet log-count" role="status">{state.words}</span>
      {state.busy
        ? <button className="button small" onClick={stop}>Stop the download</button>
        : <button className="button small" onClick={() => { void start(); }}>Download</button>}
    </>
  );
}

const counted = (lines: number) => `${lines.toLocaleString("en-US")} ${lines === 1 ? "line" : "lines"}`;

/** The browser's own; Escape leaves it. */
function FullScreen({ box }: { box: RefObject<HTMLElement | null> }) {
  const [full, setFull] = useState(false);
  useEffect(() => {
    const note = () => { setFull(document.fullscreenElement !== null); };
    document.addEventListener("fullscreenchange", note);
    return () => { document.removeEventListener("fullscreenchange", note); };
  }, []);
  const turn = () => {
    const done = full ? document.exitFullscreen() : box.current?.requestFullscreen();
    done?.catch(() => undefined); // a frame or a policy may refuse it
  };
  return <button className="button small" onClick={turn}>{full ? "Leave full screen" : "Full screen"}</button>;
}
