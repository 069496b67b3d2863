/** A spec that is being written: it outlives a look at another page, and the same text is one job however often it is sent. */

import { useCallback, useMemo, useState } from "react";

const KEY = "shardyard.draft";

export interface Draft {
  text: string;
  /** The idempotency key of this very text. */
  key: string;
  change: (text: string) => void;
  /** The text became a job: the next one begins anew. */
  forget: () => void;
}

export function useDraft(first: string): Draft {
  const [text, setText] = useState(() => sessionStorage.getItem(KEY) ?? first);
  const change = useCallback((changed: string) => {
    sessionStorage.setItem(KEY, changed);
    setText(changed);
  }, []);
  const forget = useCallback(() => { sessionStorage.removeItem(KEY); }, []);
  const key = useMemo(() => newKey(text), [text]);
  return { text, key, change, forget };
}

/** Not `randomUUID`, which pages without TLS on another machine's address do not have. */
function newKey(text: string): string {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return `page-${text.length}-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
