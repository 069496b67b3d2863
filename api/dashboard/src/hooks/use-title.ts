/** The page's title: browser tabs are how people watch several jobs. */

import { useEffect } from "react";

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Shardyard" : `${title} · Shardyard`;
  }, [title]);
}
