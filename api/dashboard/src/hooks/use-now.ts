/** The time, once a second or more rarely, for what counts up on the page. */

import { useEffect, useState } from "react";

export function useNow(everyMs = 1000): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => { setNow(new Date()); }, everyMs);
    return () => { clearInterval(timer); };
  }, [everyMs]);
  return now;
}
