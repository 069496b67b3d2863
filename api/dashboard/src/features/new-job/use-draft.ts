/** A spec that is being written: it outlives a look at another page, and the same text is one job however often it is sent. */

import { useCallback, useMemo, useState } from "react";
import { newKey } from "../../api/idempotency-key";

const KEY = "shardyard.draft";

export interface Draft {
  text: string;
  /** The idempotency key of this very text. */
  key: string;
  change: (text: string) => void;
  /** The text became a job: the next one begins anew. */
  forget: () => void;
}

/** `of`: what the draft was made out of, each of which has one of its own. One mounted editor is one draft. */
export function useDraft(first: string, of = ""): Draft {
  const place = of === "" ? KEY : `${KEY}.${of}`;
  const [text, setText] = useState(() => sessionStorage.getItem(place) ?? first);
  const change = useCallback((changed: string) => {
    sessionStorage.setItem(place, changed);
    setText(changed);
  }, [place]);
  const forget = useCallback(() => { sessionStorage.removeItem(place); }, [place]);
  const key = useMemo(() => newKey(String(text.length)), [text]);
  return { text, key, change, forget };
}
