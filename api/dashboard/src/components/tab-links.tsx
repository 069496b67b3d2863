/** The links between the tabs of a page, each with an address of its own. */

import { useEffect, useRef } from "react";
import { Link } from "wouter";
import "./tab-links.css";

export interface TabLink {
  name: string;
  address: string;
  open: boolean;
}

export function TabLinks({ label, tabs }: { label: string; tabs: readonly TabLink[] }) {
  const box = useRef<HTMLElement>(null);
  const shown = tabs.find(({ open }) => open)?.name;
  // On a narrow screen the links scroll: the open one is brought to the middle.
  useEffect(() => {
    const link = box.current?.querySelector<HTMLElement>("[aria-current]");
    if (box.current && link) box.current.scrollLeft = link.offsetLeft - (box.current.clientWidth - link.offsetWidth) / 2;
  }, [shown]);
  return (
    <nav ref={box} className="tab-links" aria-label={label}>
      {tabs.map(({ name, address, open }) => <Link key={name} href={address} aria-current={open ? "page" : undefined}>{name}</Link>)}
    </nav>
  );
}
