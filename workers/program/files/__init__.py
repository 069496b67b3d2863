"""Files of a job, `files` of its spec: resolved once for the job, fetched once for each node."""
