"""Incidents of a job and their repairs."""

from pydantic import Field

from .base import Value


class Repair(Value):
    """How a gang was repaired in place."""

    generation: int | None = None
    restored: int | None = Field(
        None, description="Step whose snapshots the gang restored; null if it restored a checkpoint."
    )
    step: int | None = Field(None, description="First step after the repair.")
    seconds: float | None = Field(
        None, description="Seconds from the detection of the fault to the first step after the repair."
    )
    spares: list[int] = Field(default_factory=list, description="Ranks that hot spares took over.")


class Stacks(Value):
    """Stack traces that several ranks have in common."""

    ranks: list[int]
    stack: str = Field(description="Stack traces of all threads of one of these ranks, the innermost frame last.")


class Waiting(Value):
    """A collective that some ranks had entered and that had not finished."""

    ranks: list[int]
    group: str = Field(description="Mesh axis of the process group, or `world`.")
    members: list[int]
    seq: int = Field(description="Sequence number of the collective in its process group.")
    op: str
    seconds: float = Field(description="Longest time, in seconds, that one of these ranks had waited.")


class Incident(Value):
    """A fault or anomaly of a job, with its repair."""

    position: int = Field(description="Position in the job's history.")
    ts: float = Field(description="Time in Unix seconds.")
    attempt: int
    cause: str = Field(
        description="Code of the cause, such as `rank_lost`, `node_lost`, `hang` or `exception`; later versions may add codes."
    )
    rank: int | None = None
    node: str | None = None
    generation: int | None = None
    step: int | None = Field(None, description="Newest step that was reported before the incident.")
    message: str
    traceback: str | None = None
    stacks: list[Stacks] = Field(
        default_factory=list, description="Stack traces of every rank; identical ones are listed once."
    )
    waiting: list[Waiting] = Field(default_factory=list, description="Collectives that had not finished.")
    nccl_ras: list[str] = Field(
        default_factory=list,
        description="What NCCL's RAS subsystem reported of a hang: ranks without an answer, and launch counts that differ.",
    )
    log: list[str] = Field(default_factory=list, description="Last log lines of the rank.")
    ranks: list[int] = Field(
        default_factory=list, description="Ranks that ran on a lost node, or whose replicas differ from the others."
    )
    repair: Repair | None = None
    summary: str = Field(description="The incident and its repair as one paragraph.")


class Incidents(Value):
    """One page of incidents. `next` is the `after` (with `newest`: the `before`) of the next request, null on the last page."""

    items: list[Incident]
    next: int | None = None
