/** `/compare?job=…&job=…&base=…`: runs over each other, and where their specs differ. All of it is in the address. */

import { lazy } from "react";
import { useSearchParams } from "wouter";
import { Empty } from "../components/empty";
import { LoadedPart } from "../components/loaded-part";
import { JobPicker } from "../features/compare/job-picker";
import { useTitle } from "../hooks/use-title";
import { MAX_COMPARED } from "../model/addresses";

const Comparison = lazy(async () => ({ default: (await import("../features/compare/comparison")).Comparison }));

export function ComparePage() {
  useTitle("Compare");
  const [ids, change] = useJobs();
  return (
    <main className="page">
      <div className="page-head"><h1>Compare</h1></div>
      {ids.length < MAX_COMPARED && <JobPicker without={ids} onPick={(id) => { change([...ids, id]); }} />}
      {ids.length === 0 && <Empty title="Nothing to compare yet"><p>Search for jobs above, or select some in the list of jobs.</p></Empty>}
      {ids.length > 0 && <LoadedPart><Comparison ids={ids} onRemove={(id) => { change(ids.filter((known) => known !== id)); }} /></LoadedPart>}
    </main>
  );
}

/** The jobs of the address; its other parameters stay. */
function useJobs(): [readonly string[], (jobs: readonly string[]) => void] {
  const [params, setParams] = useSearchParams();
  const change = (jobs: readonly string[]) => {
    setParams((known) => new URLSearchParams([...jobs.map((job) => ["job", job]), ...[...known].filter(([name]) => name !== "job")]), { replace: true });
  };
  return [[...new Set(params.getAll("job"))].slice(0, MAX_COMPARED), change];
}
