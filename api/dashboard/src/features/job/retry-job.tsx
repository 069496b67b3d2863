/** The button that submits a job again that failed or was cancelled, and opens the new job's page. */

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { newKey } from "../../api/idempotency-key";
import { retryJob, type Job } from "../../api/jobs";
import { ProblemNotice } from "../../components/problem-notice";
import { jobAddress } from "../../model/addresses";

export function RetryJob({ job }: { job: Job }) {
  const [, navigate] = useLocation();
  const [key] = useState(() => newKey("retry"));
  const retry = useMutation({
    mutationFn: () => retryJob(job.id, key),
    onSuccess: (made) => { navigate(jobAddress(made.id)); },
  });
  if (job.state !== "failed" && job.state !== "cancelled") return null;
  return (
    <>
      <button className="button" disabled={retry.isPending} onClick={() => { retry.mutate(); }}>Retry</button>
      {retry.error && <ProblemNotice problem={retry.error} />}
    </>
  );
}
