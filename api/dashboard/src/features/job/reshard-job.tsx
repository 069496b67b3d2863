/** The button that gives a job another layout; the control plane says whether it can run. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Schema } from "../../api/http";
import { type Job, reshardJob } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";

type Layout = Schema<"Layout">;

/** Degrees, and ZeRO's stage with them. What is not among these stays as it is. */
const DEGREES = ["data", "tensor", "pipeline", "context", "expert", "zero"] as const satisfies readonly (keyof Layout)[];
type Degree = (typeof DEGREES)[number];
const SCHEDULES: readonly Layout["schedule"][] = ["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev", "2bw", "pipedream"];

export function ReshardJob({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button className="button" onClick={() => { setOpen(true); }}>Change layout…</button>
      {open && <Dialog job={job} onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ job, onDone }: { job: Job; onDone: () => void }) {
  const client = useQueryClient();
  const [layout, setLayout] = useState(() => (job.spec as { train: { layout: Layout } }).train.layout);
  const change = useMutation({
    mutationFn: () => reshardJob(job.id, layout),
    onSuccess: onDone,
    onSettled: () => client.invalidateQueries({ queryKey: ["job"] }),
  });
  const servers = layout.parameter_server?.servers ?? 0;
  const ranks = Number(layout.pipeline) * Number(layout.data) * layout.context * Number(layout.tensor) + servers;
  const set = (name: Degree, text: string) => { setLayout({ ...layout, ...(name === "data" && { elastic: null }), ...(name === "tensor" && { tensor_shape: null }), ...(name === "pipeline" && { pipeline_split: "flops" as const, pipeline_blocks: null }), [name]: Number(text) }); };
  const setSchedule = (schedule: Layout["schedule"]) => { setLayout({ ...layout, schedule, vertical_sync: schedule === "pipedream" && layout.vertical_sync }); };
  return (
    <Confirm title={`Change the layout of ${job.name}`} yes="Change the layout" no="Keep the current one" harmless busy={change.isPending} onYes={() => { change.mutate(); }} onNo={onDone}>
      <div className="form">
        {DEGREES.map((name) => (
          <label key={name}>
            {name}
            <input type="number" min={name === "zero" ? 0 : 1} max={name === "zero" ? 3 : undefined} value={Number(layout[name])} onChange={(event) => { set(name, event.target.value); }} />
          </label>
        ))}
        <label>
          schedule
          <select disabled={layout.pipeline === 1} value={layout.schedule} onChange={(event) => { setSchedule(event.target.value as Layout["schedule"]); }}>
            {SCHEDULES.map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
      </div>
      <p className="quiet">
        {ranks} ranks. The job saves a checkpoint after its current step, releases its devices and resumes on the new layout. Steps and losses continue.
      </p>
      {change.error && <ProblemNotice problem={change.error} />}
    </Confirm>
  );
}
