/** A job's notes, and the button that edits them with its name and labels. */

import type { Job } from "../../api/jobs";
import { EditJob } from "./edit-job";
import "./job-notes.css";

export function JobNotes({ job }: { job: Job }) {
  return (
    <section className="card" aria-label="Notes">
      <div className="card-head">
        <h2>Notes</h2>
        <EditJob job={job} />
      </div>
      <p className={job.notes === "" ? "job-notes quiet" : "job-notes"}>{job.notes === "" ? "None yet." : job.notes}</p>
    </section>
  );
}
