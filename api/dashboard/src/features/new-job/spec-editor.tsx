/** A spec as text; what is wrong is marked. The browser's text area, until the scripts of the code editor are loaded, and where they are not. */

import { useEffect, useRef, useState } from "react";
import type { SchemaNode } from "../../api/schema";
import type { CodeEditor } from "./code-editor";
import { PlainEditor } from "./plain-editor";

/** A finding in the text. */
export interface Mark {
  /** Of the key that it is about, and the key's line, from 1. */
  at: number;
  line: number;
  text: string;
  /** The job would run all the same. */
  harmless: boolean;
}

export interface SpecEditorProps {
  text: string;
  onText: (text: string) => void;
  onCursor: (cursor: number) => void;
  marks: readonly Mark[];
  /** Where the cursor is to go, once; another object each time. */
  goTo: { at: number } | null;
  /** Null until it is known. */
  schema: SchemaNode | null;
}

export function SpecEditor(props: SpecEditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [loaded, setLoaded] = useState<{ Editor: typeof CodeEditor; cursor: number | null } | null>(null);
  useEffect(() => {
    // Its styles are style sheets that a script makes: the page's security policy allows them where a browser can adopt them.
    if (!("adoptedStyleSheets" in document)) return;
    let left = false;
    const swap = ({ CodeEditor: Editor }: { CodeEditor: typeof CodeEditor }) => {
      if (!left) setLoaded({ Editor, cursor: document.activeElement === area.current ? (area.current?.selectionStart ?? null) : null });
    };
    import("./code-editor").then(swap, () => undefined);
    return () => { left = true; };
  }, []);
  return loaded === null ? <PlainEditor {...props} area={area} /> : <loaded.Editor {...props} cursor={loaded.cursor} />;
}
