/** Whether the page is in a tab that is not in view. One that was in view counts as such for a few seconds more. */

import { useEffect, useState } from "react";

/** A short look at another tab closes nothing. */
const STAYS_MS = 5000;

export function useOutOfSight(): boolean {
  const [away, setAway] = useState(() => document.hidden);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => { setAway(true); }, STAYS_MS);
      else setAway(false);
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);
  return away;
}
