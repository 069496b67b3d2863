/** Sets the page's title, which is the name of its browser tab. */

import { useEffect } from "react";

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Shardyard" : `${title} · Shardyard`;
  }, [title]);
}
