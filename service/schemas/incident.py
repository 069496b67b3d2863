"""What went wrong with a job, and its repair."""

from pydantic import Field

from .base import Value


class Repair(Value):
    """How a gang was repaired in place."""

    generation: int | None = None
    restored: int | None = Field(None, description="Step whose snapshots it went on from; null: from a checkpoint.")
    step: int | None = Field(None, description="The first step after the repair.")
    seconds: float | None = Field(None, description="From the fault's notice to that step.")
    spares: list[int] = Field(default_factory=list, description="Ranks that warm spares took over.")


class Stacks(Value):
    """What several ranks were doing alike."""

    ranks: list[int]
    stack: str = Field(description="All threads of one of them, the innermost frame last.")


class Waiting(Value):
    """A collective that some ranks had entered and that was not done."""

    ranks: list[int]
    group: str = Field(description="The mesh axis, or `world`.")
    members: list[int]
    seq: int = Field(description="Its number among the group's collectives.")
    op: str
    seconds: float = Field(description="How long they had waited.")


class Incident(Value):
    """Something that went wrong with a job, and what was done about it."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    cause: str = Field(description="`rank_lost`, `node_lost`, `hang`, `exception`, … ; more may come.")
    rank: int | None = None
    node: str | None = None
    generation: int | None = None
    step: int | None = Field(None, description="The newest step that had been told.")
    message: str
    traceback: str | None = None
    stacks: list[Stacks] = Field(default_factory=list, description="Of every rank, equal ones once.")
    waiting: list[Waiting] = Field(default_factory=list)
    log: list[str] = Field(default_factory=list, description="The rank's last lines.")
    ranks: list[int] = Field(
        default_factory=list, description="Those that a lost node took along, or that differ from the others."
    )
    repair: Repair | None = None
    story: str = Field(description="One paragraph for people.")


class Incidents(Value):
    """Incidents in the order asked for; `next` is the `after`, or with `newest` the `before`, of the next request, null at the end."""

    items: list[Incident]
    next: int | None = None
