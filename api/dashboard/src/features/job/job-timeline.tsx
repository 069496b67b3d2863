/** A job's life on one line, read anew whenever its state moved. */

import { useQuery } from "@tanstack/react-query";
import { LifeLine } from "./timeline";
import { getLifeLine } from "../../model/timeline";

export function JobLife({ id, now }: { id: string; now: Date }) {
  const { data } = useQuery({ queryKey: ["lifeline", id], queryFn: ({ signal }) => getLifeLine(id, signal) });
  return data ? <LifeLine line={data} now={now} /> : null;
}
