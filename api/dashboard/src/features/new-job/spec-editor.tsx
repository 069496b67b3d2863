/** A spec as text, with the numbers of its lines; lines in which something is wrong are marked. The browser's own text area. */

import { useEffect, useRef, type UIEvent } from "react";
import "./spec-editor.css";

export interface SpecEditorProps {
  text: string;
  onText: (text: string) => void;
  onCursor: (cursor: number) => void;
  /** Lines, from 1, in which something is wrong. */
  wrong: ReadonlySet<number>;
  /** Where the cursor is to go, once; another object each time. */
  goTo: { at: number } | null;
}

export function SpecEditor({ text, onText, onCursor, wrong, goTo }: SpecEditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const numbers = useRef<HTMLOListElement>(null);
  const lines = text.split("\n").length;

  useEffect(() => {
    if (goTo === null) return;
    area.current?.focus();
    area.current?.setSelectionRange(goTo.at, goTo.at);
    onCursor(goTo.at);
  }, [goTo, onCursor]);

  const follow = (event: UIEvent<HTMLTextAreaElement>) => {
    if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
  };
  return (
    <div className="spec-editor">
      <ol ref={numbers} className="spec-editor-numbers" aria-hidden="true">
        {Array.from({ length: lines }, (_, index) => (
          <li key={index} data-wrong={wrong.has(index + 1) || undefined}>{index + 1}</li>
        ))}
      </ol>
      <textarea
        ref={area}
        aria-label="Job spec, YAML"
        aria-invalid={wrong.size > 0}
        aria-describedby="spec-findings"
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        value={text}
        onChange={(event) => { onText(event.target.value); }}
        onSelect={(event) => { onCursor(event.currentTarget.selectionStart); }}
        onScroll={follow}
      />
    </div>
  );
}
