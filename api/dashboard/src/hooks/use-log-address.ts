/** `#log-of-3` in the address asks for the log of rank 3: a link from wherever a rank is shown. */

import { useEffect, useEffectEvent } from "react";

export const logAddress = (rank: number) => `#log-of-${rank}`;

/** `show` is called with the rank that the address asks for, once each time; then the logs are in view. */
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
