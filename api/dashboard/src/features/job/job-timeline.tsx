/** A job's timeline. It is fetched again after each change of state. */

import { useQuery } from "@tanstack/react-query";
import { getTimeline } from "../../api/timeline";
import { ProblemNotice } from "../../components/problem-notice";
import { StateTimeline } from "./timeline";

export function JobTimeline({ id, now }: { id: string; now: Date }) {
  const { data, error } = useQuery({ queryKey: ["timeline", id], queryFn: ({ signal }) => getTimeline(id, signal) });
  if (!data) return error && <ProblemNotice problem={error} />;
  return <StateTimeline line={data} now={now} />;
}
