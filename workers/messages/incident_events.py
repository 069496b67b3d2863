"""Events of what goes wrong, of what is done about it, and of what users ask of a running gang."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from .artifact import Artifact
from .event_type import Event

#: Why the service gives an elastic job another layout.
ReshardReason = Literal["no_room", "devices_free"]
#: Lane, category, name, start and length in µs after the step's begin, micro-batch, stage.
TraceSpan = tuple[int, str, str, float, float, int | None, int | None]
#: Kind of action, stage, micro-batch, start and length in µs after the step's begin.
TraceAction = tuple[str, int, int, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """The stacks of ranks that stand at the same place."""

    ranks: tuple[int, ...]
    """Ranks with these stacks."""
    stack: str
    """All threads with their frames as text, the innermost frame last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWait:
    """A collective that ranks have entered and that has not completed."""

    group: str
    """Name of the process group: a mesh axis or `world`."""
    members: tuple[int, ...]
    """All ranks of the group."""
    seq: int
    """Sequence number of the collective in its group."""
    op: str
    """Name of the collective, such as `all_reduce`."""
    ranks: tuple[int, ...]
    """Ranks that wait in it."""
    seconds: float
    """Seconds that the first of them has waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePipeline:
    """One rank's part of a pipeline in a traced step."""

    place: int | None = None
    """Place of the rank in its pipeline, from 0."""
    bubble_measured: float | None = None
    """Share of the step (0 to 1) that the rank waited for other stages."""
    bubble_simulated: float | None = None
    """The same share in the simulated schedule, where messages take no time."""
    ideal: tuple[TraceAction, ...] = ()
    """Actions of the simulated schedule: kind, stage, micro-batch, start and length in µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEvent(Event):
    """Something went wrong. Fields after `log` belong to certain causes."""

    kind: ClassVar[str] = "incident"
    cause: str
    """Code of the cause."""
    message: str
    """What happened, in words."""
    rank: int | None = None
    """The rank to blame."""
    node: str | None = None
    """Id of the rank's node."""
    traceback: str | None = None
    """Python traceback of the rank's exception."""
    generation: int | None = None
    """Generation of the gang: 1, and one more after each repair."""
    step: int | None = None
    """The newest reported step. Of a checkpoint or an export that failed: its step."""
    log: tuple[str, ...] = ()
    """The rank's last log lines."""
    raised_in: int | None = None
    """Of an `exception`: the step in which it was raised."""
    since: int | None = None
    """Of a `straggler`: the first slow step."""
    busy_s: float | None = None
    """Of a `straggler`: its busy seconds in a step, median."""
    usual_s: float | None = None
    """Of a `straggler`: the usual busy seconds in a step."""
    peers: tuple[int, ...] | None = None
    """Of a `straggler`: ranks with the same work. Empty if it was compared with its own past."""
    loss: float | None = None
    """Of a `loss_spike`: the step's loss."""
    usual: float | None = None
    """Of a `loss_spike`: median loss of the steps before."""
    ranks: tuple[int, ...] | None = None
    """Of a `replica_mismatch`: ranks in the minority. Of a `node_lost`: the node's ranks. Of a divergence: ranks where it began."""
    parameters: tuple[str, ...] | None = None
    """Of a `replica_mismatch`: names of parameters that differ, at most three."""
    parameter: str | None = None
    """Of a divergence: the first parameter whose gradient is not finite."""
    agreed: int | None = None
    """Of a `replica_mismatch`: the last step after which all replicas were equal."""
    stacks: tuple[RankStacks, ...] | None = None
    """Of a `hang`: stacks of the ranks."""
    waiting: tuple[CollectiveWait, ...] | None = None
    """Of a `hang`: collectives in which ranks wait."""
    nccl_ras: tuple[str, ...] | None = None
    """Of a `hang` on NCCL: what NCCL's RAS subsystem reports, in words. Null without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairEvent(Event):
    """The gang was repaired and has trained a step again."""

    kind: ClassVar[str] = "repair"
    cause: str
    """Cause of the incident."""
    rank: int | None = None
    """The rank to blame."""
    generation: int
    """The new generation."""
    spares: tuple[int, ...] = ()
    """Ranks that spares took over."""
    restored: int | None
    """Step of the snapshots that were restored. Null: from a checkpoint or from the start."""
    step: int
    """The first step of the new generation."""
    seconds: float
    """Seconds from the incident to the end of that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonEvent(Event):
    """The service keeps new gangs away from a node that had too many incidents."""

    kind: ClassVar[str] = "cordon"
    node: str
    """Id of the node."""
    until: float | None
    """End of the cordon in unix seconds. Null: the node stays in use, because it is the last of its kind."""
    message: str
    """The incidents, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardEvent(Event):
    """The job gets another layout."""

    kind: ClassVar[str] = "reshard"
    before: str
    """Layout before, in words."""
    after: str
    """Layout after, in words."""
    reason: ReshardReason | None = None
    """Why the service changed the layout of an elastic job. Null if a user did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent(Event):
    """A fault that a user asked for was injected, or could not be."""

    kind: ClassVar[str] = "fault"
    id: str
    """Id of the fault."""
    fault: str
    """Kind of the fault, such as `kill-rank`."""
    rank: int | None = None
    """The rank that was meant."""
    delay_ms: float | None = None
    """Of `slow-rank`: milliseconds by which each step is slower."""
    duration_s: float | None = None
    """Of `slow-rank`: seconds that the rank stays slow."""
    done: bool
    """False if the fault was not injected before the attempt ended."""
    message: str
    """What was done, in words."""
    step: int | None = None
    """The newest reported step."""
    asked_by: str | None = None
    """Who asked for the fault. The service sets it."""
    asked_at: float | None = None
    """When the fault was asked for, in unix seconds. The service sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent(Event):
    """One step of one rank in a step trace. Stored with the trace, never streamed."""

    kind: ClassVar[str] = "trace"
    id: str
    """Id of the trace."""
    rank: int
    """The rank."""
    step: int
    """The step."""
    began: float
    """Begin of the step in unix seconds, on the gang's common clock."""
    seconds: float
    """Seconds of the step."""
    error_s: float
    """Seconds by which the rank's clock may be off."""
    sums: Mapping[str, float]
    """Seconds by category. They add up to the step."""
    spans: tuple[TraceSpan, ...]
    """Lane, category, name, start and length in µs after `began`, micro-batch, stage."""
    lanes: tuple[str, ...]
    """Names of the lanes: the training thread and mesh axes."""
    dropped: int
    """Number of spans left out, the shortest ones."""
    pipeline: TracePipeline | None
    """The rank's part of the pipeline. Null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFinishedEvent(Event):
    """A step trace has ended."""

    kind: ClassVar[str] = "trace_finished"
    id: str
    """Id of the trace."""
    done: bool
    """True if every traced rank has sent all steps."""
    message: str | None
    """Why the trace failed, or why it has fewer steps than asked for."""
    steps: tuple[int, int] | None
    """First and last traced step. Null if there is none."""
    asked_by: str | None = None
    """Who asked for the trace. The service sets it."""
    asked_at: float | None = None
    """When the trace was asked for, in unix seconds. The service sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent(Event):
    """A profile that a user asked for has ended."""

    kind: ClassVar[str] = "profile"
    id: str
    """Id of the profile."""
    profile: str
    """Kind of the profile, such as `cpu`."""
    rank: int
    """The rank that was meant."""
    done: bool
    """True if the profile is stored."""
    message: str
    """What was profiled, or why it was not, in words."""
    file: Artifact | None = None
    """The file of the job that has it. Null if there is none."""
    asked_by: str | None = None
    """Who asked for the profile. The service sets it."""
    asked_at: float | None = None
    """When the profile was asked for, in unix seconds. The service sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecEvent(Event):
    """A command that a user ran beside a rank has ended. Its output is in the rank's log."""

    kind: ClassVar[str] = "exec"
    id: str
    """Id of the command."""
    rank: int
    """The rank."""
    command: tuple[str, ...] = ()
    """The command and its arguments. The service sets it."""
    status: int | None = None
    """Its exit status, or 128 and the signal that ended it. Null if it did not run to an end."""
    message: str
    """How it ended, in words."""
    asked_by: str | None = None
    """Who ran the command. The service sets it."""
    asked_at: float | None = None
    """When the command was asked for, in unix seconds. The service sets it."""
