"""Jobs that a path gives by id alone, and not by name, which may mean another job when the same request is sent again.

So it is with a place in a job's records, and with an idempotency key of an order: they are of one job.
"""

from typing import Annotated

from fastapi import Depends, Path

from ...service import ids
from ..errors import InvalidParameter
from .dependencies import idempotency_header

_REMEDY = "A name may mean another job by now. See its id with `shardyard list --name NAME`, or `GET /v1/jobs/NAME`."


def require_job_id(job: str, remedy: str) -> None:
    """Raises InvalidParameter with the remedy if `job` is not the id of a job."""
    if ids.parse("job", job) is None:
        raise InvalidParameter(f"{job[:80]!r} is not the id of a job.", field="job", remedy=remedy)


def require_job_id_with(place: object, job: str) -> None:
    """Raises InvalidParameter if there is a place in the records of one job, but `job` is a name."""
    if place:
        require_job_id(job, _REMEDY)


def _with_place(
    job: Annotated[str, Path(description="Id of the job, not its name: a position is of one job.")],
) -> str:
    require_job_id(job, _REMEDY)
    return job


def _order_key(
    job: str, key: Annotated[str | None, idempotency_header(" Needs the job's id, not its name.")] = None
) -> str | None:
    require_job_id_with(key, job)
    return key


#: A job beside a position in the path.
JobWithPlace = Annotated[str, Depends(_with_place)]
#: The idempotency key of an order to a job. With it the job is given by its id.
OrderKey = Annotated[str | None, Depends(_order_key)]
