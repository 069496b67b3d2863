/** Which operations on checkpoints are shown, and which are underway. */

import type { Operation } from "../api/operations";

export const isOpen = ({ state }: Operation) => state === "pending" || state === "running";

/** The newest operation of each kind on the checkpoint in this folder. */
export function ofCheckpoint(all: readonly Operation[], path: string): readonly Operation[] {
  const mine = all.filter((one) => one.path === path);
  return ["verify", "export", "pin", "unpin"].flatMap((kind) => mine.find((one) => one.kind === kind) ?? []);
}
