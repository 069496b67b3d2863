/** The draft of a spec. It survives a visit to another page, and the same text makes one job, however often it is sent. */

import { useCallback, useMemo, useState } from "react";
import { newKey } from "../../api/idempotency-key";
import { keep, readKept } from "../../hooks/browser-storage";

const KEY = "shardyard.draft";

export interface Draft {
  text: string;
  /** The idempotency key of this very text. */
  key: string;
  change: (text: string) => void;
  /** Deletes the draft, once its text has become a job. */
  forget: () => void;
}

/** `of`: the parent of the draft; each parent has its own draft. One mounted editor is one draft. */
export function useDraft(first: string, of = ""): Draft {
  const place = of === "" ? KEY : `${KEY}.${of}`;
  const [text, setText] = useState(() => readKept(place, "sessionStorage") ?? first);
  const change = useCallback((changed: string) => {
    keep(place, changed, "sessionStorage");
    setText(changed);
  }, [place]);
  const forget = useCallback(() => { keep(place, null, "sessionStorage"); }, [place]);
  const key = useMemo(() => newKey(String(text.length)), [text]);
  return { text, key, change, forget };
}
