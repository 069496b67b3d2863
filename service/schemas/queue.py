"""What waits for devices, and what has them."""

from typing import Final

from pydantic import Field

from .base import Timestamp, Value

#: The most waiting jobs that are counted.
MOST_COUNTED: Final = 10_000


class QueuedJob(Value):
    """A job that waits for devices."""

    position: int = Field(description="Place among all waiting jobs, from 1.")
    job: str
    name: str
    actor: str = Field(description="Who submitted the job.")
    device: str = Field(description="Kind of device that it asks for: `auto`, `cpu` or `cuda`.")
    ranks: int
    spares: int = Field(description="Hot spares, a device each.")
    since: Timestamp = Field(description="Submission, or end of the job's last attempt.")
    attempt: int = Field(description="Number of its last attempt; 0: it was never placed.")
    retry_at: Timestamp | None = Field(
        None, description="It is not placed before; until then it blocks no other job. Null: at once."
    )
    reason: str | None = Field(
        None, description="Code of the reason why it waits; null until a dispatcher has seen it."
    )
    message: str | None = Field(None, description="The reason in words.")


class Queue(Value):
    """One page of the waiting jobs, in the order in which they are placed: of each kind of device, first submitted first."""

    items: list[QueuedJob]
    total: int = Field(description=f"Number of waiting jobs, counted up to {MOST_COUNTED:,}.")
    next: str | None = Field(None, description="`after` of the next request; null on the last page.")


class RunningJob(Value):
    """A job whose gang has, or is given, devices."""

    job: str
    name: str
    actor: str = Field(description="Who submitted the job.")
    state: str
    attempt: int
    device: str | None = Field(None, description="Kind of its devices.")
    devices: int = Field(description="Its devices, with those of hot spares.")
    nodes: int = Field(description="Machines on which its gang has devices, as last seen.")
    since: Timestamp = Field(description="Time at which the attempt was placed.")


class RunningJobs(Value):
    """One page of the jobs that have devices, first submitted first."""

    items: list[RunningJob]
    next: str | None = Field(None, description="`after` of the next request; null on the last page.")
