/** Announces a new page to screen readers: its title is read out, and the focus goes to its start. Of another tab only the title is read out. */

import { useEffect, useRef, useState, type ReactNode } from "react";
import { useLocation, useSearch } from "wouter";
import { pageOf } from "../model/addresses";

export function RouteChange({ children }: { children: ReactNode }) {
  const [location] = useLocation();
  const search = useSearch();
  const [announced, announce] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const shown = useRef(location);
  const wentBack = useRef(false);

  useEffect(() => {
    const mark = () => { wentBack.current = true; };
    addEventListener("popstate", mark);
    return () => { removeEventListener("popstate", mark); };
  }, []);

  useEffect(() => {
    if (shown.current === location) {
      wentBack.current = false; // to another setting of the same page
      return;
    }
    const turned = pageOf(shown.current) !== pageOf(location);
    shown.current = location;
    if (turned) box.current?.focus({ preventScroll: true });
    // When the user goes back, the browser restores the scroll position itself.
    if (turned && !wentBack.current) scrollTo(0, 0);
    wentBack.current = false;
    announce(document.title);
  }, [location, search]);

  return (
    <>
      <p className="unseen" role="status">{announced}</p>
      <div id="content" ref={box} tabIndex={-1}>{children}</div>
    </>
  );
}
