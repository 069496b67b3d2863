/** What jsdom lacks, which lays nothing out: which elements are in view. */

import { vi } from "vitest";

/** `seen`: whether the panel of a name is in view. */
export function showInView(seen: (name: string) => boolean = () => true): void {
  class Observer {
    constructor(readonly onChange: (entries: { target: HTMLElement; isIntersecting: boolean }[]) => void) {}

    observe(target: HTMLElement): void {
      queueMicrotask(() => { this.onChange([{ target, isIntersecting: seen(target.dataset.panel ?? "") }]); });
    }

    unobserve(): void {
      // says nothing more, which it never does by itself
    }
  }
  vi.stubGlobal("IntersectionObserver", Observer);
}
