/** Returns `value` once it has not changed for a moment, so that there is no request per keystroke. */

import { useEffect, useState } from "react";

const TYPING_MS = 250;

export function useDebounced(value: string): string {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => { settle(value); }, TYPING_MS);
    return () => { clearTimeout(timer); };
  }, [value]);
  return settled;
}
