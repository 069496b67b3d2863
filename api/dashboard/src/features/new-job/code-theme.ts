/** The look of the code editor, in the colours of the page, which are light or dark. */

import { EditorView } from "@codemirror/view";

const LIST = { fontFamily: "var(--mono)", maxHeight: "16rem" };
const BOX = { border: "1px solid var(--line)", borderRadius: "var(--radius)", backgroundColor: "var(--surface)", color: "var(--text)" };
const UNDERLINE = { backgroundImage: "none", textDecoration: "underline wavy", textDecorationSkipInk: "none" };

export const editorTheme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", fontSize: "0.8125rem" },
  "&.cm-focused": { outline: "none" }, // its host has one
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { padding: "0.6rem 0", caretColor: "var(--text)" },
  ".cm-line": { padding: "0 0.8rem 0 0.5rem" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { minWidth: "3rem", border: "0", borderRight: "1px solid var(--faint-line)", backgroundColor: "var(--sunken)", color: "var(--quiet)" },
  ".cm-lineNumbers": { flex: "1" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 0.7rem" },
  ".cm-gutterElement.cm-wrong": { backgroundColor: "color-mix(in srgb, var(--red) 18%, transparent)", color: "var(--text)", fontWeight: "700" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--blue) 5%, transparent)" },
  ".cm-tooltip": { ...BOX, maxWidth: "min(26rem, 90vw)", fontSize: "0.8125rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": LIST,
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.1rem 0.5rem", color: "var(--text)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--fill)", color: "#fff" },
  ".cm-completionDetail": { fontStyle: "normal", fontFamily: "var(--sans)", color: "inherit" },
  ".cm-tooltip.cm-completionInfo": { ...BOX, fontFamily: "var(--sans)", lineHeight: "1.45" },
  ".cm-about": { margin: "0", padding: "0.35rem 0.6rem", lineHeight: "1.45" },
  // The package's own are pictures in addresses, which the page's security policy refuses.
  ".cm-lintRange-error": { ...UNDERLINE, textDecorationColor: "var(--red)" },
  ".cm-lintRange-warning": { ...UNDERLINE, textDecorationColor: "var(--amber)" },
  ".cm-diagnostic": { borderLeft: "3px solid var(--red)", padding: "0.3rem 0.6rem", whiteSpace: "pre-wrap" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--amber)" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--quiet)" },
  ".cm-panels-bottom": { borderTop: "1px solid var(--faint-line)" },
  ".cm-keys": { margin: "0", padding: "0.25rem 0.8rem", fontSize: "0.75rem", lineHeight: "1.4" },
  ".cm-panel.cm-panel-lint ul": { maxHeight: "8rem" },
});
