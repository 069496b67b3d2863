/** What a job that ends leaves is read a last time, while what is known of it stays on the page. */

import { useEffect, useState } from "react";

/** Calls `refetch` when `ended` becomes true. A job that had ended before is read by its query itself. */
export function useOnceEnded(ended: boolean, refetch: () => unknown): void {
  const [before] = useState(ended);
  useEffect(() => {
    if (ended && !before) refetch();
  }, [ended, before, refetch]);
}
