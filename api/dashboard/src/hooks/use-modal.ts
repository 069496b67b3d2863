/** A dialog that is open while it is in the page. It is the browser's own modal dialog, which keeps the focus and restores it. */

import { type RefObject, useLayoutEffect, useRef } from "react";

export function useModal(): RefObject<HTMLDialogElement | null> {
  const dialog = useRef<HTMLDialogElement>(null);
  // Closed while it is still in the page: a dialog that was taken out gives no focus back.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => { element?.close(); };
  }, []);
  return dialog;
}
