/** What becomes of deleted jobs: how long they can be restored, as the operator has set it. */

import { useServer } from "../hooks/use-server";
import { period } from "../model/format";

export function Removal({ many = false }: { many?: boolean }) {
  const seconds = useServer()?.undelete_s;
  const [they, theirs] = many ? ["They", "their records and checkpoints"] : ["It", "its records and its checkpoints"];
  if (seconds === 0) return <p>{they} cannot be restored: {theirs} are removed.</p>;
  if (seconds === null) return <p>{they} can be restored.</p>;
  return <p>{they} can be restored for {seconds === undefined ? "some time" : period(seconds)}. Then {theirs} are removed.</p>;
}
