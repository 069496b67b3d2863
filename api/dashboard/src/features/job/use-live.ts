/** A job's live data: its curves so far, then its event stream, which continues from there without a gap or a repetition. */

import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useReducer, useState } from "react";
import { type Curves, getCurves } from "../../api/curves";
import { type StreamEvent, toStreamEvent } from "../../api/events";
import { Problem } from "../../api/http";
import { jobPath } from "../../api/jobs";
import { retrying } from "../../api/retrying";
import { type Connection, follow } from "../../api/sse";
import { useOutOfSight } from "../../hooks/use-out-of-sight";
import type { StreamPart } from "../../model/job-tabs";
import { EMPTY, init, type Live, reduce } from "../../model/live";
import { renewPlan } from "./use-plan";

/** The page is drawn at most once in this time, however fast the steps come. */
const DRAW_MS = 200;

type Action = { curves: Curves } | { events: StreamEvent[] };

const next = (live: Live, action: Action): Live => ("curves" in action ? init(live, action.curves) : reduce(live, action.events));

export interface LiveJob extends Live {
  connection: Connection;
  problem: Problem | null;
}

/**
 * `onState` is called whenever the job may have moved, or something happened to it. What is known stays while nothing of the stream is
 * read; the curves are then fetched again before it continues. A page that is out of sight reads nothing: all tabs of a browser share
 * six connections, and a stream keeps one. One mounted page is one job: remount it for another id.
 */
export function useLive(id: string, wanted: StreamPart, onState: () => void): LiveJob {
  const [live, dispatch] = useReducer(next, EMPTY);
  const [connection, setConnection] = useState<Connection>("connecting");
  const [problem, setProblem] = useState<Problem | null>(null);
  const client = useQueryClient();
  const part = useOutOfSight() ? "nothing" : wanted;

  useEffect(() => {
    if (part === "nothing") return;
    const ending = new AbortController();
    const batch = new Batch((events) => {
      dispatch({ events });
      const plan = events.findLast((event) => event.kind === "plan");
      if (plan) renewPlan(client, id, plan.plan);
      if (events.some((event) => event.kind === "entry" && event.entry.kind !== "checkpoint")) onState();
    });
    const run = async () => {
      const curves = await retrying(() => getCurves(id, null, ending.signal), ending.signal);
      dispatch({ curves });
      renewPlan(client, id); // one may lie before the stream
      await follow(`${jobPath(id)}/events?ranks=${part === "ranks"}`, {
        after: curves.cursor,
        signal: ending.signal,
        onConnection: setConnection,
        onFrame: (frame) => {
          const event = toStreamEvent(frame);
          if (event) batch.add(event);
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
      setConnection("connecting");
      setProblem(null);
    };
  }, [id, part, client, onState]);

  return { ...live, connection, problem };
}

/** Collects the events since the last drawing and passes them on together. */
class Batch {
  #events: StreamEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly onFlush: (events: StreamEvent[]) => void) {}

  add(event: StreamEvent): void {
    this.#events.push(event);
    this.#timer ??= setTimeout(() => { this.flush(); }, DRAW_MS);
  }

  flush(): void {
    this.stop();
    const events = this.#events;
    this.#events = [];
    if (events.length > 0) this.onFlush(events);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
