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
  const [before] = useState(() => ({ name: job.name, labels: toText(job.labels), notes: job.notes }));
  const [name, setName] = useState(before.name);
  const [labels, setLabels] = useState(before.labels);
  const [notes, setNotes] = useState(before.notes);
  const same = name === before.name && labels === before.labels && notes === before.notes;
  const change = useMutation({
    // Only what was changed here: another user may have changed the rest meanwhile.
    mutationFn: async () => editJob(job.id, {
      ...(name !== before.name && { name }),
      ...(labels !== before.labels && { labels: toLabels(labels) }),
      ...(notes !== before.notes && { notes }),
    }),
    onSuccess: onDone,
    onSettled: () => Promise.all(["job", "jobs"].map((about) => client.invalidateQueries({ queryKey: [about] }))),
  });
  return (
    <Confirm title={`Edit ${job.name}`} yes="Save" no="Leave it as it is" harmless busy={change.isPending || same} onYes={() => { change.mutate(); }} onNo={onDone}>
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

const toText = (labels: Job["labels"]) => Object.entries(labels).map(([key, value]) => `${key}=${value}`).join("\n");

/** A label a line; empty lines do not count. Raises `Problem`. */
function toLabels(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const errors = lines
    .filter((line) => !line.includes("="))
    .map((line) => ({ field: "labels", message: `“${line}” is not key=value.`, remedy: "Such as team=search." }));
  if (errors.length > 0) throw new Problem(0, "invalid_request", "The labels cannot be read", "", errors);
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]));
}
