/** How a spec is edited: YAML's colours, completion and descriptions from the schema, marks of findings, and the keys. */

import { autocompletion, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintKeymap } from "@codemirror/lint";
import { EditorState, type Extension, RangeSet, StateEffect, StateField, type Text } from "@codemirror/state";
import { EditorView, gutterLineClass, GutterMarker, highlightActiveLine, hoverTooltip, keymap, lineNumbers, showPanel } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { SchemaNode } from "../../api/schema";
import { help } from "../../model/schema";
import { complete } from "../../model/spec-completion";
import { keysOf } from "../../model/spec-keys";
import { editorTheme } from "./code-theme";
import type { Mark } from "./spec-editor";

const KEYS_ID = "spec-editor-keys";

export const specExtensions = (schema: () => SchemaNode | null): Extension => [
  lineNumbers(),
  wrongLine,
  highlightActiveLine(),
  history(),
  yaml(),
  indentUnit.of("  "),
  EditorState.tabSize.of(2),
  syntaxHighlighting(COLOURS),
  autocompletion({ override: [completeFrom(schema)], icons: false, activateOnCompletion: ({ apply }) => typeof apply === "string" && apply.endsWith(": ") }),
  hoverTooltip((view, at) => description(schema(), view.state.doc.toString(), at)),
  keymap.of([...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
  showPanel.of(() => ({ dom: keysPanel() })),
  EditorView.contentAttributes.of({ "aria-label": "Job spec, YAML", "aria-describedby": KEYS_ID, tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
  editorTheme,
];

/** In the root of the editor, since a description is looked up there. */
function keysPanel(): HTMLElement {
  const dom = document.createElement("p");
  dom.id = KEYS_ID;
  dom.className = "cm-keys";
  dom.textContent = "Ctrl+Space suggests. F8 goes to the next finding. Tab indents; Esc, then Tab leaves the editor.";
  return dom;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "color-mix(in srgb, var(--blue) 85%, var(--text))" },
  { tag: [tags.string, tags.content, tags.number, tags.bool, tags.keyword], color: "var(--text)" },
  { tag: [tags.labelName, tags.typeName, tags.meta], color: "var(--violet)" },
  { tag: [tags.comment, tags.separator, tags.punctuation, tags.squareBracket, tags.brace], color: "var(--quiet)" },
]);

const completeFrom = (schema: () => SchemaNode | null) => (context: CompletionContext): CompletionResult | null => {
  const known = schema();
  const found = known && complete(known, context.state.doc.toString(), context.pos);
  if (!found) return null;
  const typed = found.from < context.pos || context.matchBefore(/: +$/) !== null;
  if (!context.explicit && !typed) return null;
  return {
    from: found.from,
    validFor: /^[\w-]*$/,
    // In the schema's order.
    options: found.suggestions.map(({ label, apply, kind, detail, about }, at) => ({ label, apply, type: kind, detail, boost: -at, ...(about === "" ? {} : { info: about }) })),
  };
};

/** What the key at `at` means. */
function description(schema: SchemaNode | null, text: string, at: number) {
  const begin = at - (/[\w-]*$/.exec(text.slice(0, at))?.[0].length ?? 0);
  const key = keysOf(text).find((one) => one.at === begin);
  const found = schema && key ? help(schema, key.path) : null;
  if (!found) return null;
  return {
    pos: begin,
    end: begin + (/^[\w-]*/.exec(text.slice(begin))?.[0].length ?? 0),
    create: () => {
      const dom = document.createElement("p");
      dom.className = "cm-about";
      dom.textContent = [found.about, found.takes, found.default === null ? "" : `default ${found.default}`].filter((part) => part !== "").join("; ");
      return { dom };
    },
  };
}

/** From the key that a finding is about to the end of its line. */
export const diagnosticsOf = (doc: Text, marks: readonly Mark[]): Diagnostic[] =>
  marks.filter(({ at }) => at <= doc.length).map(({ at, text, harmless }) => ({
    from: at,
    to: Math.max(at, doc.lineAt(at).to),
    severity: harmless ? "warning" : "error",
    message: text,
  }));

class WrongLine extends GutterMarker {
  override elementClass = "cm-wrong";
}

const WRONG = new WrongLine();

/** The findings whose lines have marked numbers. */
export const wrongLines = StateEffect.define<readonly Mark[]>();

const wrongLine = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update: (value, transaction) => {
    const marks = transaction.effects.find((effect) => effect.is(wrongLines))?.value;
    if (marks === undefined) return value.map(transaction.changes);
    const { doc } = transaction.state;
    const starts = new Set(marks.filter(({ at, harmless }) => !harmless && at <= doc.length).map(({ at }) => doc.lineAt(at).from));
    return RangeSet.of([...starts].map((start) => WRONG.range(start)), true);
  },
  provide: (field) => [
    gutterLineClass.from(field),
    EditorView.contentAttributes.compute([field], (state) => ({ "aria-invalid": String(state.field(field).size > 0) })),
  ],
});
