/** A job's life on one line, read anew whenever its state moved. */

import { useQuery } from "@tanstack/react-query";
import { LifeLine } from "../components/life-line";
import { getLifeLine } from "../services/lifeline";

export function JobLife({ id, now }: { id: string; now: Date }) {
  const { data } = useQuery({ queryKey: ["lifeline", id], queryFn: ({ signal }) => getLifeLine(id, signal) });
  return data ? <LifeLine line={data} now={now} /> : null;
}
