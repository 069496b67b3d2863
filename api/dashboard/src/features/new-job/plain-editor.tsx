/** The editor of a spec that needs no scripts of its own: the browser's text area, with the numbers of the lines. */

import { type RefObject, useEffect, useRef, type UIEvent } from "react";
import type { SpecEditorProps } from "./spec-editor";
import "./spec-editor.css";

export function PlainEditor({ area, text, onText, onCursor, marks, goTo }: SpecEditorProps & { area: RefObject<HTMLTextAreaElement | null> }) {
  const wrong = new Set(marks.filter(({ harmless }) => !harmless).map(({ line }) => line));
  const numbers = useRef<HTMLOListElement>(null);
  const lines = text.split("\n").length;

  useEffect(() => {
    if (goTo === null) return;
    area.current?.focus();
    area.current?.setSelectionRange(goTo.at, goTo.at);
    onCursor(goTo.at);
  }, [area, goTo, onCursor]);

  const follow = (event: UIEvent<HTMLTextAreaElement>) => {
    if (numbers.current) numbers.current.scrollTop = event.currentTarget.scrollTop;
  };
  return (
    <div className="spec-editor plain-editor">
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
