/** `#log-of-3` in the address opens the log of rank 3. */

import { useEffect, useEffectEvent } from "react";

export const logAddress = (rank: number) => `#log-of-${rank}`;

/** Calls `show` with the rank in the address, once each time, and scrolls to the logs. */
export function useLogAddress(show: (rank: number) => void): void {
  const look = useEffectEvent(() => {
    const asked = /^#log-of-(\d+)$/.exec(location.hash)?.[1];
    if (asked === undefined) return;
    history.replaceState(history.state, "", location.pathname + location.search); // so that the same link works again
    show(Number(asked));
    document.getElementById("logs-title")?.scrollIntoView();
  });
  useEffect(() => {
    look();
    window.addEventListener("hashchange", look);
    return () => { window.removeEventListener("hashchange", look); };
  }, []);
}
