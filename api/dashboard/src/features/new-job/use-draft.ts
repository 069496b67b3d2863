/** The draft of a spec. It survives a visit to another page, and the same text makes one job, however often it is sent. */

import { useCallback, useRef, useState } from "react";
import { newKey } from "../../api/idempotency-key";
import { keep, readKept } from "../../hooks/browser-storage";

const DRAFT = "shardyard.draft";
const SENT = "shardyard.sent";

export interface Draft {
  text: string;
  change: (text: string) => void;
  /** The idempotency key of a text that is about to be sent. It outlives the page: the answer may be lost. */
  keyOf: (text: string) => string;
  /** Deletes the draft, once this text has become a job. False, and nothing is deleted, if the draft has another text by then. */
  forget: (sent: string) => boolean;
}

/** `of`: the parent of the draft; each parent has its own draft. One mounted editor is one draft. */
export function useDraft(first: string, of = ""): Draft {
  const [draft, sent] = [DRAFT, SENT].map((place) => (of === "" ? place : `${place}.${of}`)) as [string, string];
  const [text, setText] = useState(() => readKept(draft, "sessionStorage") ?? first);
  const now = useRef(text);
  const last = useRef<Sent | null>(null);
  const change = useCallback((changed: string) => {
    keep(draft, changed, "sessionStorage");
    now.current = changed;
    setText(changed);
  }, [draft]);
  const keyOf = useCallback((asked: string) => {
    last.current ??= readSent(sent);
    if (last.current?.text !== asked) last.current = { text: asked, key: newKey(String(asked.length)) };
    keep(draft, asked, "sessionStorage"); // also of a text that was not changed: another visit may begin with another one
    keep(sent, JSON.stringify(last.current), "sessionStorage");
    return last.current.key;
  }, [draft, sent]);
  const forget = useCallback((asked: string) => {
    if (now.current !== asked) return false;
    for (const place of [draft, sent]) keep(place, null, "sessionStorage");
    return true;
  }, [draft, sent]);
  return { text, change, keyOf, forget };
}

interface Sent {
  text: string;
  key: string;
}

const readSent = (place: string) => JSON.parse(readKept(place, "sessionStorage") ?? "null") as Sent | null;
