/** The editor of a spec with colours, completion and marks. It is in a shadow root, which adopts its style sheets. */

import { setDiagnostics } from "@codemirror/lint";
import { Annotation } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { useEffect, useLayoutEffect, useRef } from "react";
import { diagnosticsOf, specExtensions, wrongLines } from "./code-extensions";
import type { SpecEditorProps } from "./spec-editor";
import "./spec-editor.css";

/** `cursor`: where it was in the text area, if that had the focus. */
export function CodeEditor({ cursor, ...props }: SpecEditorProps & { cursor: number | null }) {
  const { text, marks, goTo } = props;
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView>(null);
  const latest = useRef(props);
  // Texts of the editor that have not come back as `text`. More may be typed before one does, and must not be lost then.
  const sent = useRef<string[]>([]);

  useLayoutEffect(() => { latest.current = props; });

  useLayoutEffect(() => {
    if (host.current === null) return;
    const view = openEditor(host.current, () => latest.current, (changed) => { sent.current.push(changed); });
    if (cursor !== null) {
      view.focus();
      view.dispatch({ selection: { anchor: Math.min(cursor, view.state.doc.length) } });
    }
    editor.current = view;
    return () => { view.destroy(); };
  }, [cursor]);

  useEffect(() => {
    const at = sent.current.lastIndexOf(text);
    sent.current = at === -1 ? [] : sent.current.slice(at + 1);
    if (at === -1) replaceText(editor.current, text);
  }, [text]);

  useEffect(() => {
    const view = editor.current;
    if (view === null) return;
    view.dispatch(setDiagnostics(view.state, diagnosticsOf(view.state.doc, marks)));
    view.dispatch({ effects: wrongLines.of(marks) });
  }, [marks]);

  useEffect(() => {
    const view = editor.current;
    if (goTo === null || view === null) return;
    const at = Math.min(goTo.at, view.state.doc.length);
    view.focus();
    view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
  }, [goTo]);

  return <div ref={host} className="spec-editor" />;
}

function openEditor(host: HTMLElement, latest: () => SpecEditorProps, onSend: (text: string) => void): EditorView {
  // React shows a component twice while it is developed: a host keeps its root.
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  return new EditorView({
    parent: root,
    root,
    doc: latest().text,
    extensions: [
      specExtensions(() => latest().schema),
      EditorView.updateListener.of(({ docChanged, selectionSet, state, transactions }) => {
        if (docChanged && !transactions.some((one) => one.annotation(fromPage))) {
          const text = state.doc.toString();
          onSend(text);
          latest().onText(text);
        }
        if (docChanged || selectionSet) latest().onCursor(state.selection.main.head);
      }),
    ],
  });
}

/** On changes that the page made, of which it knows. */
const fromPage = Annotation.define<boolean>();

/** Another text, such as a template's: as one change, which can be undone. */
function replaceText(view: EditorView | null, text: string): void {
  if (view === null || view.state.doc.eq(view.state.toText(text))) return;
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, annotations: fromPage.of(true) });
}
