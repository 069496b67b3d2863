/** Which panels are on the screen or near it, by the name that each has as `data-panel`. */

import { type RefCallback, useCallback, useRef, useState } from "react";

/** Panels are read and drawn before they are scrolled in. */
const MARGIN = "300px";

type Names = ReadonlySet<string>;

/** `watch` is the `ref` of each panel. */
export function useInView(): { inView: Names; watch: RefCallback<HTMLElement> } {
  const [inView, see] = useState<Names>(new Set());
  const observer = useRef<IntersectionObserver>(undefined);
  const watch = useCallback((panel: HTMLElement | null) => {
    if (panel === null) return;
    const watching = (observer.current ??= new IntersectionObserver((entries) => { see((known) => changed(known, entries)); }, { rootMargin: MARGIN }));
    watching.observe(panel);
    return () => {
      watching.unobserve(panel);
      see((known) => changed(known, [{ target: panel, isIntersecting: false }]));
    };
  }, []);
  return { inView, watch };
}

function changed(known: Names, entries: readonly Pick<IntersectionObserverEntry, "target" | "isIntersecting">[]): Names {
  const next = new Set(known);
  for (const { target, isIntersecting } of entries) {
    const name = (target as HTMLElement).dataset.panel ?? "";
    if (isIntersecting) next.add(name);
    else next.delete(name);
  }
  return next.size === known.size && [...next].every((name) => known.has(name)) ? known : next;
}
