/** `value` once it has stood still for a moment: nobody wants an answer per keystroke. */

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
