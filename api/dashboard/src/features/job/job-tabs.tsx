/** The links between the tabs of a job's page. Each keeps what its tab was set to. */

import type { Job } from "../../api/jobs";
import { TabLinks } from "../../components/tab-links";
import { jobAddress } from "../../model/addresses";
import { type JobTab, TAB_NAMES, tabsOf } from "../../model/job-tabs";
import type { Searches } from "./use-tab-state";

export interface JobTabsProps {
  job: Job;
  open: JobTab | null;
  searches: Searches;
}

export function JobTabs({ job, open, searches }: JobTabsProps) {
  const tabs = tabsOf(job).map((tab) => ({ name: TAB_NAMES[tab], address: jobAddress(job.id, tab, searches[tab]), open: tab === open }));
  return <TabLinks label="Tabs of the job" tabs={tabs} />;
}
