/** A checkpoint becomes a Hugging Face folder: by the cluster, beside the checkpoints, or by a command where the storage can be read. */

import { useState } from "react";
import type { Checkpoint } from "../../api/checkpoints";
import type { Job } from "../../api/jobs";
import { type Dtype, DTYPES } from "../../api/operations";
import { Confirm } from "../../components/confirm";
import { CopyableText } from "../../components/copyable-text";
import { ProblemNotice } from "../../components/problem-notice";
import { exportCommand } from "../../model/checkpoints";
import { useExport } from "./use-operations";

export function ExportCheckpoint({ job, checkpoint, onDone }: { job: Job; checkpoint: Checkpoint; onDone: () => void }) {
  const [dtype, setDtype] = useState<Dtype>("fp32");
  const start = useExport(job.id, checkpoint.position, onDone);
  return (
    <Confirm title={`Export step ${checkpoint.step} of ${job.name}`} yes="Export" no="Close" harmless busy={start.isPending} onYes={() => { start.mutate(dtype); }} onNo={onDone}>
      <p>The cluster writes its weights beside the checkpoints, as a folder that transformers loads.</p>
      <div className="form">
        <label>
          Weights as
          <select value={dtype} onChange={(event) => { setDtype(event.target.value as Dtype); }}>
            {DTYPES.map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
      </div>
      {start.error && <ProblemNotice problem={start.error} />}
      <p>Or write it anywhere, where this checkpoint’s storage can be read:</p>
      <CopyableText label="Command" text={exportCommand(checkpoint.path)} />
      <p className="quiet">With checkpoint.export: true in a spec, a job does so by itself after its last step.</p>
    </Confirm>
  );
}
