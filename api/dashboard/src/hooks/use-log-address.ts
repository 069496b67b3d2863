/** `#log-of-3` in the address opens the log of rank 3. */

import { useEffect, useEffectEvent } from "react";

export const logAddress = (rank: number) => `#log-of-${rank}`;

/** Calls `show` with the rank in the address, once each time, and scrolls to the logs. */
export function useLogAddress(show: (rank: number) => void): void {
  const showRank = useEffectEvent(() => {
    const rank = /^#log-of-(\d+)$/.exec(location.hash)?.[1];
    if (rank === undefined) return;
    history.replaceState(history.state, "", location.pathname + location.search); // so that the same link works again
    show(Number(rank));
    document.getElementById("logs-title")?.scrollIntoView();
  });
  useEffect(() => {
    showRank();
    window.addEventListener("hashchange", showRank);
    return () => { window.removeEventListener("hashchange", showRank); };
  }, []);
}
