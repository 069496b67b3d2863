/** The button that edits a job's name, labels and notes in a dialog; the control plane says what is wrong with them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Problem } from "../../api/http";
import { editJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";

export function EditJob({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button className="button small" onClick={() => { setOpen(true); }}>Edit…</button>
      {open && <Dialog job={job} onDone={() => { setOpen(false); }} />}
    </>
  );
}

function Dialog({ job, onDone }: { job: Job; onDone: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState(job.name);
  const [labels, setLabels] = useState(() => Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join("\n"));
  const [notes, setNotes] = useState(job.notes);
  const change = useMutation({
    mutationFn: async () => editJob(job.id, { name, labels: toLabels(labels), notes }),
    onSuccess: onDone,
    onSettled: () => Promise.all(["job", "jobs"].map((about) => client.invalidateQueries({ queryKey: [about] }))),
  });
  return (
    <Confirm title={`Edit ${job.name}`} yes="Save" no="Leave it as it is" harmless busy={change.isPending} onYes={() => { change.mutate(); }} onNo={onDone}>
      <div className="form edit-job">
        <label className="form-wide">
          Name
          <input maxLength={63} spellCheck={false} value={name} onChange={(event) => { setName(event.target.value); }} />
        </label>
        <label className="form-wide">
          Labels (one key=value a line)
          <textarea rows={4} spellCheck={false} value={labels} onChange={(event) => { setLabels(event.target.value); }} />
        </label>
        <label className="form-wide">
          Notes
          <textarea rows={8} value={notes} onChange={(event) => { setNotes(event.target.value); }} />
        </label>
      </div>
      {change.error && <ProblemNotice problem={change.error} />}
    </Confirm>
  );
}

/** A label a line; empty lines do not count. Raises `Problem`. */
function toLabels(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const errors = lines
    .filter((line) => !line.includes("="))
    .map((line) => ({ field: "labels", message: `“${line}” is not key=value.`, remedy: "Such as team=search." }));
  if (errors.length > 0) throw new Problem(0, "invalid_request", "The labels cannot be read", "", errors);
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
}
