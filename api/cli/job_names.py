"""Names of jobs in commands: the ids that they mean, and their completion by the shell."""

from ...service.errors import ShardyardError
from ..client import ApiError, Client

#: The user waits at the prompt.
_PATIENCE_S = 1.0
_MOST = 50


def job_id(client: Client, job: str, place: int | None) -> str:
    """The id of a job. With a place in its records, `job` as it was typed: the service refuses a name, which may mean another by now."""
    return job if place else client.job(job).id


def job_names(incomplete: str) -> list[str]:
    """Names of jobs with this prefix, newest first, or ids for the prefix of an id. Empty if no control plane answers at once."""
    try:
        with Client(timeout_s=_PATIENCE_S, tries=1) as client:
            found = client.jobs(text=incomplete or None, limit=_MOST).items
    except (ApiError, ShardyardError, OSError, ValueError):
        return []
    words = [job.id if incomplete.startswith("job-") else job.name for job in found]
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
