/** What a comparison reads: each run with its own curves, what the runs logged, and where their steps are in tokens and time. */

import { keepPreviousData, type Query, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Curve, getCurves, type Range } from "../../api/curves";
import { isRefused } from "../../api/http";
import { getLoggedCurves, getLoggedNames, type LoggedCurve, type LoggedName } from "../../api/logged-metrics";
import { untilRead } from "../../api/retrying";
import { getRun, getRunCurves, type RunCurves } from "../../api/runs";
import { useDebounced } from "../../hooks/use-debounced";
import { trains } from "../../model/checkpoints";
import { isFinal } from "../../model/jobs";
import { loggedName, type RunResults } from "../../model/results";
import { type Axis, labelsOf, placesAlong } from "../../model/runs";
import type { Places } from "../../model/step-places";

const POLL_MS = 5000;
const NAMES_MS = 10_000;

export interface ComparedRun extends RunCurves {
  label: string;
  /** A colour of the theme, without its dashes. */
  colour: string;
}

const COLOURS = ["blue", "orange", "green", "violet", "red", "grey"] as const;

interface Asked {
  signal: AbortSignal;
}

interface Answer<T> {
  data: T | undefined;
  error: Error | null;
}

/** The answers in the order of the queries. One function for all, so that its result stays the same until an answer changes. */
const combine = <T>(results: readonly Answer<T>[]) => ({
  found: results.map(({ data }) => data),
  problem: results.find(({ error }) => error !== null)?.error ?? null,
});

/** The same for runs: `refused` has, in their order, why those that are not there cannot be read; `problem` is of the others. */
const combineRuns = (results: readonly Answer<RunCurves>[]) => {
  const refused = results.map(({ data, error }) => (data === undefined && isRefused(error) ? error : null));
  return { found: results.map(({ data }) => data), refused, problem: combine(results.filter((_, at) => !refused[at])).problem };
};

const hasEnded = ({ job }: { job: ComparedRun["job"] }) => isFinal(job.state);

export interface MissingRun {
  id: string;
  problem: Error;
}

/** The runs that are read, each with the colour of its place among the ids, and those that are not there. */
export function useComparedRuns(ids: readonly string[]): { runs: readonly ComparedRun[]; missing: readonly MissingRun[]; problem: Error | null } {
  const { found, refused, problem } = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["run", id],
      queryFn: ({ signal }: Asked) => getRunCurves(id, signal),
      refetchInterval: (query: { state: { data?: RunCurves | undefined; error: Error | null } }) => ((query.state.data && hasEnded(query.state.data)) || isRefused(query.state.error) ? untilRead(query) : POLL_MS),
    })),
    combine: combineRuns,
  });
  const runs = useMemo(() => {
    const known = found.flatMap((one, at) => (one ? [{ ...one, colour: COLOURS[at] ?? "grey" }] : []));
    const labels = labelsOf(known.map(({ job }) => job));
    return known.map((run, at) => ({ ...run, label: labels[at] ?? run.job.id }));
  }, [found]);
  const missing = ids.flatMap((id, at) => (refused[at] ? [{ id, problem: refused[at] }] : []));
  return { runs, missing, problem };
}

/** Names that any of the runs logged; `text`: only those that contain it. */
export function useLoggedNames(ids: readonly string[], text: string, ended: boolean): { found: { names: readonly LoggedName[]; more: boolean } | undefined; problem: Error | null } {
  const settled = useDebounced(text.trim());
  const { data, error } = useQuery({
    queryKey: ["logged-names", ids, settled],
    queryFn: ({ signal }) => getLoggedNames(ids, settled, signal),
    placeholderData: keepPreviousData,
    refetchInterval: ended ? untilRead : NAMES_MS,
  });
  return { found: data, problem: error };
}

/** How long curves of other names stay: until those of the names in view are there. */
const KEPT_MS = 10_000;

const curvesOf = (run: ComparedRun, buckets?: number) => ["logged-curves", run.job.id, buckets ?? null];

const newest = (queries: readonly Query[]) =>
  queries.filter(({ state }) => state.data !== undefined).reduce<Query | undefined>((one, other) => (one && one.state.dataUpdatedAt >= other.state.dataUpdatedAt ? one : other), undefined)?.state.data as ReadonlyMap<string, LoggedCurve> | undefined;

/** Of each run the curves of these logged metrics, as far as it has them. `ranges`: its steps; null: all. */
export function useLoggedCurves(runs: readonly ComparedRun[], names: readonly string[], ranges: readonly (Range | null)[], buckets?: number): { found: readonly (ReadonlyMap<string, LoggedCurve> | undefined)[]; problem: Error | null } {
  const client = useQueryClient();
  const settled = useDebounced(JSON.stringify(names));
  return useQueries({
    queries: runs.map((run, at) => ({
      queryKey: [...curvesOf(run, buckets), ranges[at] ?? null, settled, hasEnded(run)],
      queryFn: ({ signal }: Asked) => getLoggedCurves(run.job.id, JSON.parse(settled) as string[], ranges[at] ?? null, signal, buckets),
      enabled: settled !== "[]",
      // The answer for the names or the range before: `keepPreviousData` does nothing among several queries.
      placeholderData: () => newest(client.getQueryCache().findAll({ queryKey: curvesOf(run, buckets) })),
      refetchInterval: hasEnded(run) ? untilRead : POLL_MS,
      gcTime: KEPT_MS,
    })),
    combine: combine<ReadonlyMap<string, LoggedCurve>>,
  });
}

/** Extremes are those of all steps, however few buckets there are. */
const EXTREMES = 2;
const NOTHING: ReadonlyMap<string, LoggedCurve> = new Map();
const WHOLE: readonly (Range | null)[] = [];

/** What the table has of each run, for metrics by their paths. */
export function useResults(runs: readonly ComparedRun[], paths: readonly string[]): readonly RunResults[] {
  const names = paths.flatMap((path) => loggedName(path) ?? []);
  const { found } = useLoggedCurves(runs, names, WHOLE, EXTREMES);
  return useMemo(() => runs.map(({ curve, evals }, at) => ({ curve, evals, logged: found[at] ?? NOTHING })), [runs, found]);
}

/** The runs' own curves, each of its range of steps, as fine as possible; until they are read, and without a range, the known ones. */
export function useRanges(runs: readonly ComparedRun[], ranges: readonly (Range | null)[]): readonly Curve[] {
  const { found } = useQueries({
    queries: runs.map((run, at) => ({
      queryKey: ["curves", run.job.id, ranges[at] ?? null, hasEnded(run)],
      queryFn: ({ signal }: Asked) => getCurves(run.job.id, ranges[at] ?? null, signal),
      enabled: ranges[at] != null && run.curve.width > 1,
      staleTime: Infinity,
      gcTime: 60_000,
      refetchInterval: hasEnded(run) ? untilRead : POLL_MS,
    })),
    combine: combine<Awaited<ReturnType<typeof getCurves>>>,
  });
  return useMemo(() => runs.map(({ curve }, at) => (ranges[at] != null && curve.width > 1 ? found[at]?.curve : undefined) ?? curve), [runs, found, ranges]);
}

/** Where the steps of each run are along an axis; null: by step, or not known. */
export function usePlaces(runs: readonly ComparedRun[], axis: Axis): readonly (Places | null)[] {
  const { found } = useQueries({
    queries: runs.map((run) => ({
      queryKey: ["step-places", run.job.id, hasEnded(run)],
      queryFn: ({ signal }: Asked) => getRun(run.job.id, signal),
      enabled: axis !== "step" && trains(run.job),
      refetchInterval: hasEnded(run) ? untilRead : POLL_MS,
    })),
    combine: combine<Awaited<ReturnType<typeof getRun>>>,
  });
  return useMemo(() => runs.map((_, at) => (axis === "step" || !found[at] ? null : placesAlong(found[at].points, axis))), [runs, found, axis]);
}
