/** The cluster's machines. Of many the answer is large, and the bar on every page reads it. */

import { useQuery } from "@tanstack/react-query";
import { listNodes } from "../api/nodes";

const POLL_MS = 5000;
const MANY = 100;
const MANY_MS = 30_000;

/** All who use it share one reading. */
export const useNodes = () =>
  useQuery({
    queryKey: ["nodes"],
    queryFn: ({ signal }) => listNodes(signal),
    refetchInterval: ({ state }) => ((state.data?.length ?? 0) > MANY ? MANY_MS : POLL_MS),
  });
