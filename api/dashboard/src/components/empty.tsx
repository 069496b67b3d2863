/** Nothing to show, and what to do about it. */

import type { ReactNode } from "react";
import "./empty.css";

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <section className="empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
