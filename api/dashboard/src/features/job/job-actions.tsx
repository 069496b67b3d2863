/** The actions on a job. Each that cannot be undone asks for confirmation. */

import { Link } from "wouter";
import type { Job } from "../../api/jobs";
import { childAddress } from "../../model/addresses";
import { isFinal } from "../../model/jobs";
import { CancelJob } from "./cancel-job";
import { InjectFault } from "./inject-fault";
import { trains } from "../../model/checkpoints";
import { DeleteJob } from "./delete-job";
import { PauseJob } from "./pause-job";
import { PinJob } from "./pin-job";
import { ReshardJob } from "./reshard-job";
import { RetryJob } from "./retry-job";
import "./job.css";

export function JobActions({ job }: { job: Job }) {
  return (
    <div className="job-actions" role="group" aria-label="Actions">
      <Link className="button" href={childAddress(job.id, null)}>Fork…</Link>
      {!isFinal(job.state) && trains(job) && <ReshardJob job={job} />}
      {job.state === "running" && <InjectFault job={job} />}
      <PauseJob job={job} />
      <CancelJob job={job} />
      <RetryJob job={job} />
      <PinJob job={job} />
      <DeleteJob job={job} />
    </div>
  );
}
