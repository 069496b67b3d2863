/** The keys of all pages, and the button that opens the commands. Keys do nothing while a text is typed or a dialog is open. */

import { useEffect, useRef, useState } from "react";
import { useLocation } from "wouter";
import { keep, readKept } from "../../hooks/browser-storage";
import { type Action, actionOf } from "../../model/shortcuts";
import { CommandPalette } from "./command-palette";
import { KeyHelp } from "./key-help";
import { focusSearch, moveInList } from "./page-focus";
import "./keyboard.css";

const OFF = "shardyard.keys";
/** Within which the second key of two is pressed. */
const BOTH_MS = 1500;

export function Keyboard() {
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  const [letters, setLetters] = useState(() => readKept(OFF) !== "off");
  const [, navigate] = useLocation();
  const first = useRef(-Infinity);

  useEffect(() => {
    const act = (action: Action) => {
      if (action.kind === "palette" || action.kind === "help") setOpen(action.kind);
      else if (action.kind === "go") navigate(action.address);
      else if (action.kind === "search") focusSearch();
      else if (action.kind !== "first") moveInList(action.kind === "next" ? 1 : -1);
    };
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing || isTyped(event) || document.querySelector("dialog[open]")) return;
      const afterFirst = event.timeStamp - first.current < BOTH_MS;
      first.current = -Infinity;
      const action = actionOf({ key: event.key, command: event.ctrlKey || event.metaKey, alt: event.altKey }, afterFirst, letters);
      if (action === null) return;
      event.preventDefault();
      if (action.kind === "first") first.current = event.timeStamp;
      act(action);
    };
    addEventListener("keydown", press);
    return () => { removeEventListener("keydown", press); };
  }, [letters, navigate]);

  const turn = (on: boolean) => {
    keep(OFF, on ? "on" : "off");
    setLetters(on);
  };
  return (
    <>
      <button className="button small" aria-keyshortcuts="Control+K Meta+K" onClick={() => { setOpen("palette"); }}>Commands <kbd>Ctrl K</kbd></button>
      {open === "palette" && <CommandPalette onHelp={() => { setOpen("help"); }} onClose={() => { setOpen(null); }} />}
      {open === "help" && <KeyHelp letters={letters} onLetters={turn} onClose={() => { setOpen(null); }} />}
    </>
  );
}

/** Whether the key belongs to a text or a choice, also in a shadow root. */
function isTyped(event: KeyboardEvent): boolean {
  const [target] = event.composedPath();
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio])"));
}
