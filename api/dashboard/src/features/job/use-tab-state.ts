/** What the tabs of a job's page keep while another one is open: what is in their address, and how far they were scrolled. */

import { useLayoutEffect, useRef, useState } from "react";
import { useSearch } from "wouter";
import type { JobTab } from "../../model/job-tabs";

/** What each tab is set to, or was when it was left: the query of its address. */
export type Searches = Readonly<Partial<Record<JobTab, string>>>;

export function useSearches(open: JobTab | null): Searches {
  const search = useSearch();
  const [kept, keep] = useState<Searches>({});
  const now = search === "" ? "" : `?${search}`;
  if (open === null || (kept[open] ?? "") === now) return kept;
  const next = { ...kept, [open]: now };
  keep(next);
  return next;
}

/** Scrolls to where a tab was left. */
export function useScrollOf(open: JobTab | null): void {
  const places = useRef(new Map<JobTab | null, number>());
  const shown = useRef(open);
  useLayoutEffect(() => {
    if (shown.current !== open) scrollTo(0, places.current.get(open) ?? 0);
    shown.current = open;
    const note = () => { places.current.set(open, scrollY); };
    addEventListener("scroll", note, { passive: true });
    return () => { removeEventListener("scroll", note); };
  }, [open]);
}
