/** A group of charts that can be closed. A closed one shows and reads nothing, and the browser remembers it for all jobs. */

import { type ReactNode, useState } from "react";
import { keep, readKept } from "../hooks/browser-storage";
import { integer } from "../model/format";
import "./metric-group.css";

export function MetricGroup({ name, count, children }: { name: string; count: number; children: ReactNode }) {
  const [open, setOpen] = useState(() => !closedGroups().includes(name));
  const toggle = (now: boolean) => {
    setOpen(now);
    remember(name, now);
  };
  return (
    <details className="metric-group" open={open} onToggle={({ currentTarget }) => { if (currentTarget.open !== open) toggle(currentTarget.open); }}>
      <summary><h2>{name}</h2> <span className="quiet number">{integer(count)}</span></summary>
      {open && children}
    </details>
  );
}

const KEY = "shardyard closed groups";
/** Of more, the first that were closed are open again. */
const MOST = 200;

function closedGroups(): readonly string[] {
  try {
    const kept: unknown = JSON.parse(readKept(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

function remember(name: string, open: boolean): void {
  const others = closedGroups().filter((one) => one !== name);
  keep(KEY, JSON.stringify(open ? others : [...others, name].slice(-MOST)));
}
