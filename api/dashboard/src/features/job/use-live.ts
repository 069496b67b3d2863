/** A job's live data: what there is so far, then its event stream, which goes on from there without a gap or a double. */

import { useEffect, useReducer, useState } from "react";
import { getCurves, type Curves } from "../../api/curves";
import { toTold, type Told } from "../../api/events";
import { Problem } from "../../api/http";
import { jobPath } from "../../api/jobs";
import { begin, hear, SILENT, type Live } from "../../model/live";
import { follow, type Link } from "../../api/sse";

/** Drawing more often than this helps nobody, however fast the steps come. */
const DRAW_MS = 200;

type News = { curves: Curves } | { told: Told[] };

const reduce = (live: Live, news: News): Live => ("curves" in news ? begin(live, news.curves) : hear(live, news.told));

export interface LiveJob extends Live {
  link: Link;
  problem: Problem | null;
}

/** `onState` is called whenever the job may have moved, or something happened to it. One mounted page is one job: remount it for another id. */
export function useLive(id: string, onState: () => void): LiveJob {
  const [live, tell] = useReducer(reduce, SILENT);
  const [link, setLink] = useState<Link>("connecting");
  const [problem, setProblem] = useState<Problem | null>(null);

  useEffect(() => {
    const ending = new AbortController();
    const batch = new Batch((told) => {
      tell({ told });
      if (told.some((one) => one.is === "entry" && one.entry.kind !== "checkpoint")) onState();
    });
    const run = async () => {
      const curves = await patiently(() => getCurves(id, null, ending.signal), ending.signal);
      tell({ curves });
      await follow(`${jobPath(id)}/events?ranks=true`, {
        after: curves.cursor,
        signal: ending.signal,
        onLink: setLink,
        onFrame: (frame) => {
          const told = toTold(frame);
          if (told) batch.add(told);
        },
      });
      batch.flush();
      onState();
    };
    run().catch((error: unknown) => {
      if (!ending.signal.aborted && error instanceof Problem) setProblem(error);
    });
    return () => {
      ending.abort();
      batch.stop();
    };
  }, [id, onState]);

  return { ...live, link, problem };
}

/** Try again while the failure may pass. Raises the `Problem` that will not. */
async function patiently<T>(act: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (signal.aborted || !(error instanceof Problem && error.passing)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

/** What was told since the last drawing, handed on together. */
class Batch {
  #told: Told[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly hand: (told: Told[]) => void) {}

  add(one: Told): void {
    this.#told.push(one);
    this.#timer ??= setTimeout(() => { this.flush(); }, DRAW_MS);
  }

  flush(): void {
    this.stop();
    const told = this.#told;
    this.#told = [];
    if (told.length > 0) this.hand(told);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
