/** A dialog that confirms an action. Escape closes it. */

import { useId, type ReactNode } from "react";
import { useModal } from "../hooks/use-modal";
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
  const dialog = useModal();
  const heading = useId();
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
