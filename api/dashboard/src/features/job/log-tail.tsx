/** The newest log lines. It follows them until the reader scrolls up, and again once the reader is back at the end. */

import { useLayoutEffect, useRef, useState } from "react";
import type { LogLine } from "../../api/logs";
import { LogLines } from "./log-lines";
import "./log-tail.css";

export interface LogTailProps {
  lines: readonly LogLine[];
  /** Digits of the largest rank; 0: ranks are not shown. */
  width: number;
  /** What to say while there are no lines. */
  nothing: string;
}

export function LogTail({ lines, width, nothing }: LogTailProps) {
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(true);

  const toEnd = () => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [lines, following]);

  return (
    <>
      <div
        ref={box}
        className="log-tail-lines"
        role="log"
        aria-live="off"
        aria-label="Log lines"
        tabIndex={0}
        onScroll={(event) => { setFollowing(isAtEnd(event.currentTarget)); }}
      >
        {lines.length === 0 && <p className="quiet">{nothing}</p>}
        <LogLines lines={lines} width={width} />
      </div>
      {!following && (
        <button className="button log-tail-jump" onClick={() => { setFollowing(true); toEnd(); }}>↓ Newest</button>
      )}
    </>
  );
}

const isAtEnd = (element: Element) => element.scrollHeight - element.scrollTop - element.clientHeight < 24;
