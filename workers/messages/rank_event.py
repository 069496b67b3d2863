"""Events within a gang: what a trainer and its rank actor send to the supervisor. Never stored, so they need no version.

A trainer also sends kinds that the supervisor passes on as they are (`PASSED_ON`). Imports neither torch nor Ray.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pydantic import ValidationError

from .event import (
    ArtifactsEvent,
    CheckpointEvent,
    EvalEvent,
    Event,
    ExportEvent,
    FilesEvent,
    IncidentEvent,
    LogEvent,
    MetricsEvent,
    PlanEvent,
    PreflightEvent,
    ProbeEvent,
    StepNumbers,
    SummaryEvent,
    TraceEvent,
)
from .event_type import adapter

#: `FailedEvent.type` of a program that ended with another status than 0, and of which no exception is known.
EXITED: Final = "ProgramFailed"
#: What stands in the message of such a program before the last line of its standard error.
LAST_LINE: Final = "; the last line of its standard error: "
#: The line of a rank's log after which its program's own lines follow, if the node had something to prepare for it.
PROGRAM_STARTS: Final = "shardyard: the program starts"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStepEvent(StepNumbers):
    """One optimizer step as one rank saw it. Rank 0 adds the numbers that are true of the whole job."""

    kind: ClassVar[str] = "step"
    step_s: float = 0.0
    """Seconds of the step."""
    busy_s: float | None = None
    """Seconds in which the rank worked; null in a step in which that was not measured."""
    wait_s: float | None = None
    """Seconds in which the rank waited for other ranks; null in a step in which that was not measured."""
    part: int = 0
    """Number of the rank's part of the work. Ranks with the same number do equal work."""
    allocated: int | None = None
    """Bytes that torch has allocated on CUDA."""
    resident: int | None = None
    """Resident bytes of the trainer's process. The rank actor adds it on CPUs."""

    @property
    def of_job(self) -> bool:
        """Whether it has the numbers that are true of the whole job."""
        return self.loss is not None or self.skipped is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTraceFinishedEvent(Event):
    """One rank has sent all steps of a trace."""

    kind: ClassVar[str] = "trace_finished"
    id: str
    """Id of the trace."""
    rank: int
    """The rank."""
    steps: tuple[int, int]
    """First and last traced step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """Facts of an exception's cause beyond its message."""

    cause: str = "exception"
    """Code of the cause."""
    rank: int | None = None
    """The rank to blame. Null: the rank that raised, unless `unattributed`."""
    unattributed: bool = False
    """True if no rank can be blamed."""
    ranks: tuple[int, ...] | None = None
    """All ranks that are affected."""
    parameter: str | None = None
    """Name of the parameter with the first number that is not finite."""
    parameters: tuple[str, ...] | None = None
    """Names of parameters that differ."""
    agreed: int | None = None
    """The last step after which all replicas were equal."""


def facts_of(error: BaseException) -> FailureFacts:
    """The `facts` of an exception; the defaults if it has none, or none that fit."""
    try:
        facts: FailureFacts = adapter(FailureFacts).validate_python(getattr(error, "facts", None))
    except ValidationError:
        return FailureFacts()
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEvent(Event):
    """A trainer has raised an exception and ends."""

    kind: ClassVar[str] = "failed"
    type: str
    """Class of the exception."""
    message: str
    """Message of the exception."""
    traceback: str
    """Its traceback."""
    step: int | None = None
    """The step in which it was raised."""
    facts: FailureFacts = FailureFacts()
    """Facts of the exception's cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStartedEvent(Event):
    """A rank of a `command` job has started its program."""

    kind: ClassVar[str] = "program_started"
    pid: int
    """Process id of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorkerFailure:
    """One worker of Ray Train that has failed."""

    worker: int
    """Its world rank in Ray Train."""
    rank: int | None
    """The rank of the gang beside which it ran. Null if it is not known."""
    message: str
    """Class and message of its exception, or how its process ended."""
    traceback: str | None = None
    """Python traceback of its exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorkersFailedEvent(Event):
    """Workers of Ray Train have failed, and Ray Train starts all workers again."""

    kind: ClassVar[str] = "ray_workers_failed"
    failures: tuple[RayWorkerFailure, ...]
    """The workers that failed. Empty if Ray Train names none."""
    message: str
    """What Ray Train says of it, if it names no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorkersStartedEvent(Event):
    """Ray Train has started its workers again after a failure."""

    kind: ClassVar[str] = "ray_workers_started"
    seconds: float
    """Seconds since the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneEvent(Event):
    """A trainer has finished and waits to be released."""

    kind: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedEvent(Event):
    """A trainer has ended before its last step, because it was asked to."""

    kind: ClassVar[str] = "stopped"
    step: int
    """The last step that it trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitEvent(Event):
    """A trainer's process has ended. The last event of its generation."""

    kind: ClassVar[str] = "exit"
    status: int | None
    """Exit code, or minus the number of the signal. Null if the node's fork server is gone, or could not fork the trainer."""
    generation: int
    """Generation of the trainer."""
    unforked: str | None = None
    """Why the node's fork server could not fork the trainer. Null if it did, or is gone."""
    ordered: bool = False
    """Whether the gang ordered its end by force before it had ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSystemEvent(Event):
    """What one rank uses, and for the first rank of a node the node. Names and units are those of `system_metrics.py`."""

    kind: ClassVar[str] = "system"
    rank: Mapping[str, float]
    """Metric → value of the rank's processes and its GPU."""
    node: Mapping[str, float] | None = None
    """Metric → value of the node."""
    gpu: str | None = None
    """The rank's GPU on its node, as Ray numbers it; null on CPUs."""


_FROM_RANK: Final = (
    RankStepEvent,
    RankSystemEvent,
    RankTraceFinishedEvent,
    ProgramStartedEvent,
    FailedEvent,
    RayWorkersFailedEvent,
    RayWorkersStartedEvent,
    DoneEvent,
    StoppedEvent,
    ExitEvent,
)
_PASSED_ON: Final = (
    PreflightEvent,
    PlanEvent,
    ProbeEvent,
    EvalEvent,
    CheckpointEvent,
    ExportEvent,
    FilesEvent,
    LogEvent,
    MetricsEvent,
    ArtifactsEvent,
    IncidentEvent,
    TraceEvent,
    SummaryEvent,
)
#: Kinds that the supervisor passes on as they are.
PASSED_ON: Final[Mapping[str, type[Event]]] = {one.kind: one for one in _PASSED_ON}
#: Every kind that a rank sends to its supervisor.
RANK_KINDS: Final[Mapping[str, type[Event]]] = {**PASSED_ON, **{one.kind: one for one in _FROM_RANK}}


def prepare() -> None:
    """Make the adapters of all these kinds, so that no process forked from this one makes them again (2 ms each)."""
    for event_type in (*RANK_KINDS.values(), FailureFacts):
        adapter(event_type)
