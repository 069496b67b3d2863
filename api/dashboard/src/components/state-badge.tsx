/** The state of a job, a sweep or a trial: a word and a colour, never a colour alone. */

import type { State } from "../api/jobs";
import "./state-badge.css";

const TONES: Readonly<Record<string, string>> = {
  queued: "wait",
  paused: "wait",
  placing: "move",
  starting: "move",
  recovering: "warn",
  pausing: "warn",
  resharding: "warn",
  stopping: "warn",
  cancelling: "warn",
  running: "run",
  succeeded: "good",
  failed: "bad",
  cancelled: "off",
  active: "run",
  stopped: "off",
  refused: "bad",
};

export function StateBadge({ state }: { state: State }) {
  return <span className={`state-badge tone-${TONES[state] ?? "wait"}`}>{state}</span>;
}
