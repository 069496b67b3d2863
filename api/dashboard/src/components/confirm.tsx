/** A question before something that cannot be undone. The browser's own modal dialog: it keeps the focus and closes on Escape. */

import { useEffect, useId, useRef, type ReactNode } from "react";
import "./confirm.css";

export interface ConfirmProps {
  title: string;
  children: ReactNode;
  yes: string;
  no: string;
  busy: boolean;
  onYes: () => void;
  onNo: () => void;
}

export function Confirm({ title, children, yes, no, busy, onYes, onNo }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => { element?.close(); };
  }, []);
  return (
    <dialog ref={dialog} className="confirm" aria-labelledby={heading} onCancel={onNo}>
      <h2 id={heading}>{title}</h2>
      {children}
      <div className="confirm-choice">
        <button className="button" onClick={onNo}>{no}</button>
        <button className="button danger" disabled={busy} onClick={onYes}>{yes}</button>
      </div>
    </dialog>
  );
}
