"""Jobs that a path gives by id alone, and not by name, which may mean another job when the same request is sent again."""

from ...service import ids
from ..errors import InvalidParameter


def require_job_id(job: str, remedy: str) -> None:
    """Raises InvalidParameter with the remedy if `job` is not the id of a job."""
    if ids.parse("job", job) is None:
        raise InvalidParameter(f"{job[:80]!r} is not the id of a job.", field="job", remedy=remedy)
