/** The dialog that names a checkpoint as the next version of a model. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import type { Checkpoint } from "../../api/checkpoints";
import { newKey } from "../../api/idempotency-key";
import type { Job } from "../../api/jobs";
import { createVersion } from "../../api/models";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { modelAddress } from "../../model/addresses";

const NAME = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/;

export function NameVersion({ job, checkpoint: { step }, onDone }: { job: Job; checkpoint: Checkpoint; onDone: () => void }) {
  const client = useQueryClient();
  const [model, setModel] = useState(job.name);
  const [notes, setNotes] = useState("");
  const [key] = useState(() => newKey("version"));
  const create = useMutation({
    mutationFn: () => createVersion(model, { job: job.id, step, notes }, `${key}-${model}`),
    onSettled: () => Promise.all(["operations", "checkpoints"].map((kind) => client.invalidateQueries({ queryKey: [kind, job.id] }))),
  });
  const valid = NAME.test(model) && model.length <= 63;
  const yes = create.data ? {} : { yes: "Create the version" };
  return (
    <Confirm title={`Name step ${step} of ${job.name}`} {...yes} no="Close" harmless busy={create.isPending || !valid} onYes={() => { create.mutate(); }} onNo={onDone}>
      <p>The next version of a model is this checkpoint. The cluster pins it, and the job is kept while the version exists.</p>
      <div className="form">
        <label className="form-wide">
          Model
          <input maxLength={63} spellCheck={false} value={model} aria-invalid={!valid} onChange={(event) => { setModel(event.target.value); }} />
        </label>
        <label className="form-wide">
          Notes
          <textarea rows={3} maxLength={16384} value={notes} onChange={(event) => { setNotes(event.target.value); }} />
        </label>
      </div>
      {!valid && <p className="bad">Use lower-case letters, digits and dashes.</p>}
      {create.error && <ProblemNotice problem={create.error} />}
      {create.data && <p role="status">Version {create.data.number} of <Link href={modelAddress(create.data.model)}>{create.data.model}</Link> is created.</p>}
    </Confirm>
  );
}
