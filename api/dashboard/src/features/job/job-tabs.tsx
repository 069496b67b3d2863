/** The links between the tabs of a job's page. Each keeps what its tab was set to. */

import { useEffect, useRef } from "react";
import { Link } from "wouter";
import type { Job } from "../../api/jobs";
import { jobAddress } from "../../model/addresses";
import { type JobTab, TAB_NAMES, tabsOf } from "../../model/job-tabs";
import type { Searches } from "./use-tab-state";
import "./job-tabs.css";

export interface JobTabsProps {
  job: Job;
  open: JobTab | null;
  searches: Searches;
}

export function JobTabs({ job, open, searches }: JobTabsProps) {
  const box = useRef<HTMLElement>(null);
  // On a narrow screen the links scroll: the open one is brought to the middle.
  useEffect(() => {
    const link = box.current?.querySelector<HTMLElement>("[aria-current]");
    if (box.current && link) box.current.scrollLeft = link.offsetLeft - (box.current.clientWidth - link.offsetWidth) / 2;
  }, [open]);
  return (
    <nav ref={box} className="job-tabs" aria-label="Tabs of the job">
      {tabsOf(job).map((tab) => (
        <Link key={tab} href={jobAddress(job.id, tab, searches[tab])} aria-current={tab === open ? "page" : undefined}>{TAB_NAMES[tab]}</Link>
      ))}
    </nav>
  );
}
