/** The time, once a second, for what counts up on the page. */

import { useEffect, useState } from "react";

export function useNow(): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => { setNow(new Date()); }, 1000);
    return () => { clearInterval(timer); };
  }, []);
  return now;
}
