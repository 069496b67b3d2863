/** What a sweep is: its search, its trials by state, and what it has cost. */

import type { Sweep } from "../../api/sweeps";
import { Facts } from "../../components/facts";
import { TimeAgo } from "../../components/time-ago";
import { duration, secondsBetween } from "../../model/format";

export function SweepFacts({ sweep, now }: { sweep: Sweep; now: Date }) {
  const { asha, counts } = sweep;
  const losers = asha?.losers === "cancel" ? "cancelled" : "paused";
  return (
    <Facts
      title="Sweep"
      facts={[
        { name: "Search", value: sweep.search },
        { name: "Trials", value: Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ") },
        { name: "In parallel", value: String(sweep.parallel) },
        { name: "Early stopping", value: asha && `the best 1/${asha.reduction} at a rung continue, others are ${losers}` },
        { name: "Device time", value: duration(sweep.deviceSeconds) },
        { name: "Created", value: <><TimeAgo at={sweep.createdAt} now={now} /> by {sweep.actor}</> },
        { name: "Duration", value: sweep.finishedAt && duration(secondsBetween(sweep.createdAt, sweep.finishedAt)) },
        { name: "Id", value: <code>{sweep.id}</code> },
      ]}
    />
  );
}
