/** How wide an element is, in px, whenever that changes. */

import { useEffect, useState, type RefObject } from "react";

const BEFORE = 900;

export function useWidth(box: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(BEFORE);
  useEffect(() => {
    const element = box.current;
    if (element === null || typeof ResizeObserver === "undefined") return;
    const watcher = new ResizeObserver(() => { setWidth(element.clientWidth); });
    watcher.observe(element);
    return () => { watcher.disconnect(); };
  }, [box]);
  return width;
}
