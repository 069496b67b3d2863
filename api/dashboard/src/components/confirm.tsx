/** A dialog that confirms an action. It is the browser's own modal dialog, which keeps the focus, closes on Escape and restores the focus. */

import { useId, useLayoutEffect, useRef, type ReactNode } from "react";
import "./confirm.css";

export interface ConfirmProps {
  title: string;
  children: ReactNode;
  /** Left out of a dialog that only informs. */
  yes?: string;
  no: string;
  busy?: boolean;
  /** The action does no harm. */
  harmless?: boolean;
  onYes?: () => void;
  onNo: () => void;
}

export function Confirm({ title, children, yes, no, busy = false, harmless = false, onYes, onNo }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // Closed while it is still in the page: a dialog that was taken out gives no focus back.
  useLayoutEffect(() => {
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
        {yes !== undefined && <button className={harmless ? "button primary" : "button danger"} disabled={busy} onClick={onYes}>{yes}</button>}
      </div>
    </dialog>
  );
}
