/** Cancels, pauses, resumes, deletes or restores several jobs after a confirmation. Jobs that refuse are listed with the reason and stay selected. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Problem } from "../../api/http";
import { cancelJob, deleteJob, pauseJob, resumeJob, undeleteJob, type Job } from "../../api/jobs";
import { Confirm } from "../../components/confirm";
import { ProblemNotice } from "../../components/problem-notice";
import { Removal } from "../../components/removal";
import { isFinal } from "../../model/jobs";

/** Requests at once, at most. */
const AT_ONCE = 4;

interface BulkProps {
  jobs: readonly Job[];
  onDone: () => void;
}

export function BulkCancel({ jobs, onDone }: BulkProps) {
  return (
    <BulkAction jobs={jobs.filter((job) => !isFinal(job.state))} onDone={onDone} verb="Cancel" done="cancelled" no="Keep them running" act={cancelJob} danger>
      <p>Their newest checkpoints are kept. A cancelled job can be retried: a new job then resumes from its checkpoint.</p>
    </BulkAction>
  );
}

export function BulkPause({ jobs, onDone }: BulkProps) {
  const pausable = jobs.filter((job) => !isFinal(job.state) && !["pausing", "paused", "stopping", "cancelling"].includes(job.state));
  return (
    <BulkAction jobs={pausable} onDone={onDone} verb="Pause" done="paused" no="Keep them running" act={pauseJob} hides>
      <p>They save after their current step, and free their devices. Programs get SIGTERM, and have 30 seconds to save.</p>
    </BulkAction>
  );
}

export function BulkResume({ jobs, onDone }: BulkProps) {
  const paused = jobs.filter((job) => job.state === "paused");
  return (
    <BulkAction jobs={paused} onDone={onDone} verb="Resume" done="resumed" no="Keep them paused" act={resumeJob} hides>
      <p>They are queued again, and continue from their newest checkpoints.</p>
    </BulkAction>
  );
}

/** `onDone` gets the jobs that were deleted, `onSome` those of them whose others refused. */
export function BulkDelete({ jobs, onDone, onSome }: { jobs: readonly Job[]; onDone: (deleted: readonly Job[]) => void; onSome?: (deleted: readonly Job[]) => void }) {
  const deletable = jobs.filter((job) => isFinal(job.state) && !job.pinned);
  return (
    <BulkAction jobs={deletable} onDone={onDone} {...(onSome && { onSome })} verb="Delete" done="deleted" no="Keep them" act={deleteJob} danger hides>
      <Removal many />
    </BulkAction>
  );
}

export function BulkRestore({ jobs, onDone }: BulkProps) {
  return (
    <BulkAction jobs={jobs.filter((job) => job.deletedAt !== null)} onDone={onDone} verb="Restore" done="restored" no="Leave them deleted" act={undeleteJob} hides>
      <p>They are listed again as they were. Pin those that were deleted by their age.</p>
    </BulkAction>
  );
}

interface BulkActionProps extends Pick<BulkProps, "jobs"> {
  onDone: (done: readonly Job[]) => void;
  /** Some have changed, and others have refused. */
  onSome?: (done: readonly Job[]) => void;
  verb: string;
  done: string;
  no: string;
  act: (id: string) => Promise<Job>;
  danger?: boolean;
  /** Without jobs there is no button. */
  hides?: boolean;
  children: ReactNode;
}

function BulkAction({ jobs: now, onDone, onSome, verb, done, no, act, danger = false, hides = false, children }: BulkActionProps) {
  const client = useQueryClient();
  // Those that the dialog was opened for: their states change while it is open.
  const [asked, ask] = useState<readonly Job[] | null>(null);
  const jobs = asked ?? now;
  const change = useMutation({
    mutationFn: async () => {
      const changed: Job[] = [];
      await actOnAll(jobs, act, done, changed).catch((error: unknown) => {
        if (changed.length > 0) onSome?.(changed);
        ask(jobs.filter((job) => !changed.includes(job)));
        throw error;
      });
    },
    onSuccess: () => { ask(null); onDone(jobs); },
    onSettled: () => client.invalidateQueries({ queryKey: ["jobs"] }),
  });
  if (hides && jobs.length === 0) return null;
  const what = `${verb} ${jobs.length === 1 ? "1 job" : `${jobs.length} jobs`}`;
  return (
    <>
      <button className={danger ? "button danger" : "button"} disabled={jobs.length === 0} onClick={() => { ask(now); }}>{what}</button>
      {asked && (
        <Confirm
          title={`${what}?`}
          yes={what}
          no={no}
          harmless={!danger}
          busy={change.isPending}
          onYes={() => { change.mutate(); }}
          onNo={() => { ask(null); change.reset(); }}
        >
          <ul className="bulk-names">{jobs.map((job) => <li key={job.id}>{job.name} <span className="quiet">{job.state}</span></li>)}</ul>
          {children}
          {change.error && <ProblemNotice problem={change.error} />}
        </Confirm>
      )}
    </>
  );
}

/** Raises one `Problem` that names every job that refused. `changed` gets those that did not. */
export async function actOnAll(jobs: readonly Job[], act: (id: string) => Promise<Job>, done: string, changed: Job[] = []): Promise<void> {
  const waiting = [...jobs];
  const refused: { field: string; message: string; remedy: null }[] = [];
  const work = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const { name } = job;
      const one = job;
      await act(job.id).then(() => { changed.push(one); }, (error: unknown) => { refused.push({ field: name, message: (error as Error).message, remedy: null }); });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (refused.length > 0) throw new Problem(409, "refused", `${refused.length} of ${jobs.length} jobs were not ${done}`, "", refused);
}
