/** How a checkpoint becomes a Hugging Face folder. Its storage is seen by those who may read it, so they run the command. */

import { Confirm } from "../components/confirm";
import { CopiedText } from "../components/copied-text";
import { exportCommand, type Checkpoint } from "../services/checkpoints";
import type { Job } from "../services/jobs";

export function ExportCheckpoint({ job, checkpoint, onDone }: { job: Job; checkpoint: Checkpoint; onDone: () => void }) {
  return (
    <Confirm title={`Export step ${checkpoint.step} of ${job.name}`} no="Close" onNo={onDone}>
      <p>Where this checkpoint’s storage can be read, this writes its weights as a folder that transformers loads:</p>
      <CopiedText label="Command" text={exportCommand(checkpoint.path)} />
      <p className="quiet">With checkpoint.export: true in a spec, a job does so by itself after its last step.</p>
    </Confirm>
  );
}
