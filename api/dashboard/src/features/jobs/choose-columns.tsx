/** The button and the dialog that choose further columns of the table of jobs. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Job } from "../../api/jobs";
import { getLoggedNames } from "../../api/logged-metrics";
import { ChooseDialog } from "../../components/choose-dialog";
import { loggedPath, type OfMetric, pathsOf, TIME_PATHS } from "../../model/job-columns";

export interface ChooseColumnsProps {
  jobs: readonly Job[];
  columns: readonly string[];
  onChange: (columns: readonly string[]) => void;
}

export function ChooseColumns(props: ChooseColumnsProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button className="button" onClick={() => { setOpen(true); }}>Columns…</button>
      {open && <Dialog {...props} onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ jobs, columns, onChange, onDone }: ChooseColumnsProps & { onDone: () => void }) {
  const [ids] = useState(() => jobs.flatMap(({ id, startedAt }) => (startedAt === null ? [] : [id])));
  const { data: logged } = useQuery({ queryKey: ["logged-names", ids, ""], queryFn: ({ signal }) => getLoggedNames(ids, "", signal), enabled: ids.length > 0 });
  const metrics = (value: OfMetric) => (logged?.names ?? []).map(({ name }) => loggedPath(name, value));
  const paths = [...TIME_PATHS, ...pathsOf(jobs), ...metrics("metric"), ...metrics("lowest"), ...metrics("highest")];
  const about = "Times, fields of the specs, labels, results and logged metrics of the jobs that are loaded. Fields in which they differ come first.";
  return <ChooseDialog title="Columns" about={about} noun="field" paths={paths} chosen={columns} onChange={onChange} onDone={onDone} />;
}
