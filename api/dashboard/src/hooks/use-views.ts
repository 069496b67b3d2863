/** Views of the list of jobs that this browser keeps: a name, and the query of the list's address. */

import { useState } from "react";
import { keep, readKept } from "./browser-storage";

export interface View {
  name: string;
  /** Without the question mark. */
  query: string;
}

const KEY = "shardyard.views";
export const MOST_VIEWS = 50;

const isView = (value: unknown): value is View =>
  typeof value === "object" && value !== null && "name" in value && typeof value.name === "string" && "query" in value && typeof value.query === "string";

/** What another version, or a person, has written there is not trusted. */
function stored(): readonly View[] {
  try {
    const found: unknown = JSON.parse(readKept(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isView).slice(0, MOST_VIEWS) : [];
  } catch {
    return [];
  }
}

/** In the order of their names. A view of the same name is replaced. */
export function useViews(): { views: readonly View[]; save: (view: View) => void; remove: (name: string) => void } {
  const [views, setViews] = useState(stored);
  const write = (next: readonly View[]) => {
    keep(KEY, JSON.stringify(next));
    setViews(next);
  };
  const without = (name: string) => stored().filter((view) => view.name !== name);
  return {
    views,
    save: (view) => { write([...without(view.name), view].sort((a, b) => a.name.localeCompare(b.name)).slice(0, MOST_VIEWS)); },
    remove: (name) => { write(without(name)); },
  };
}
