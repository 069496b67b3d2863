/** What a job's state means for the page. */

import type { State } from "../api/jobs";

const FINAL: ReadonlySet<State> = new Set(["succeeded", "failed", "cancelled"]);

export const isFinal = (state: State) => FINAL.has(state);
