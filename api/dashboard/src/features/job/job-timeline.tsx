/** A job's timeline. It is fetched again after each change of state. */

import { useQuery } from "@tanstack/react-query";
import { getTimeline } from "../../api/timeline";
import { StateTimeline } from "./timeline";

export function JobTimeline({ id, now }: { id: string; now: Date }) {
  const { data } = useQuery({ queryKey: ["timeline", id], queryFn: ({ signal }) => getTimeline(id, signal) });
  return data ? <StateTimeline line={data} now={now} /> : null;
}
