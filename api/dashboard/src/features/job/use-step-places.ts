/** Where the steps of a training are along the axis of its charts. Null: by step, or not known (yet). */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { untilRead } from "../../api/retrying";
import { getRun } from "../../api/runs";
import { type Axis, placesAlong } from "../../model/runs";
import type { Places } from "../../model/step-places";

const POLL_MS = 5000;

export function useStepPlaces(id: string, axis: Axis, ended: boolean): Places | null {
  const { data } = useQuery({
    queryKey: ["step-places", id, ended],
    queryFn: ({ signal }) => getRun(id, signal),
    enabled: axis !== "step",
    refetchInterval: ended ? untilRead : POLL_MS,
    placeholderData: (before) => before,
  });
  return useMemo(() => (data && axis !== "step" ? placesAlong(data.points, axis) : null), [data, axis]);
}
