"""All that a restarted supervisor needs from its predecessor, beside the events that the dispatcher has not acknowledged.

The journal keeps it as JSON of version `VERSION`. A supervisor reads this version and all earlier ones, which lack fields that have
defaults; 2 added profiles and commands beside a rank, 3 the profiles that a trainer records, 4 that there are no snapshots. Every
change of a field raises it; tests/unit/workers/supervisor/test_gang_state.py compares the fields with the committed schema.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..messages import json_codec
from ..messages.exec_request import Exec
from ..messages.fault_request import Fault
from ..messages.profile_request import Profile
from ..messages.rendezvous import Reservation, SnapshotHandle
from ..messages.trace_request import Trace
from .policies.failures import Failure
from .policies.loss_spike import LossSpikeState
from .policies.repair_budget import BudgetState
from .policies.straggler import StragglersState

#: Of the journal's format: the fields below, and those of the dataclasses that they hold.
VERSION: Final = 4


class JournalUnreadable(Exception):
    """A supervisor's journal that this code cannot read: damaged, or of another version."""


Phase = Literal["placing", "training", "repairing", "ending", "ended"]


@dataclass
class Repair:
    """One repair in place. `began`: unix seconds of the fault. The rest is known when the next generation has started."""

    cause: str
    rank: int | None
    began: float
    spares: list[int] = field(default_factory=list)  # the ranks that a hot spare took over
    generation: int = 0
    restored: int | None = None  # the step that was restored from memory; None: from a checkpoint


@dataclass
class RankState:
    """One rank: its actor, what was pulled from it, and how its trainer ended."""

    rank: int
    bundle: int = 0
    name: str = ""
    reservation: Reservation | None = None
    done: bool = False
    exited: bool = False
    failed: bool = False
    stopped: bool = False
    pulled: int = 0
    step: int = 0
    lost: bool = False
    snapshots: SnapshotHandle | None = None  # as the next rank on its node holds them
    replica_holder: str | None = None


@dataclass(frozen=True)
class SpareState:
    """One place for a hot spare: its bundle, its actor's name, and the node on which it is ready."""

    bundle: int
    name: str = ""
    node: str | None = None


@dataclass(frozen=True)
class HeldEvent:
    """A rank's event that waits for step `after`, which other ranks have not reported yet."""

    after: int
    event: dict[str, Any]


@dataclass(frozen=True)
class MergerState:
    """The newest emitted events, and those that wait for other ranks."""

    state: str = "placing"
    newest_step: int = 0
    first_step_at: float | None = None
    repair: Repair | None = None  # emitted with the first step after it
    open_steps: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)  # step → rank → its record
    held: list[HeldEvent] = field(default_factory=list)
    newest_facts: dict[str, int] = field(
        default_factory=dict
    )  # kind of event → the newest step that has one; of a plan its checksum


@dataclass
class PendingFault:
    """A fault that is still to be reported. `at`: the actor that it was sent to; empty: none yet."""

    fault: Fault
    at: str = ""


@dataclass(frozen=True)
class FaultsState:
    """Injected faults: pending ones, and the ids of those that were reported."""

    pending: list[PendingFault] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)


@dataclass
class PendingTrace:
    """A trace that is still to be reported. `sent`: trainers may have it. `finished`: rank → its first and last step."""

    trace: Trace
    sent: bool = False
    finished: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class TracesState:
    """Step traces: pending ones, oldest first, and the ids of those that were reported."""

    pending: list[PendingTrace] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProfilesState:
    """Profiles of ranks: pending ones, and the ids of those that were reported."""

    pending: list[Profile] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)


@dataclass
class PendingExec:
    """A command that is still to be reported. `at`: the actor that it was sent to; empty: none yet."""

    order: Exec
    at: str = ""


@dataclass(frozen=True)
class ExecsState:
    """Commands beside ranks: pending ones, and the ids of those that were reported."""

    pending: list[PendingExec] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class GangState:
    """The state of one gang, consistent between two awaits of its supervisor."""

    phase: Phase = "placing"
    stopping: str | None = None
    generation: int = 0
    restore: int | None = None  # the step from whose snapshots this generation started
    distrusted: bool = False  # snapshots in memory are not used for the next restore
    snapshots_off: bool = False  # this generation's trainers have no memory for snapshots
    repair: Repair | None = None
    failures: list[Failure] = field(default_factory=list)
    budget: BudgetState = field(default_factory=BudgetState)
    ranks: list[RankState] = field(default_factory=list)
    spares: list[SpareState] = field(default_factory=list)
    merger: MergerState = field(default_factory=MergerState)
    stragglers: StragglersState = field(default_factory=StragglersState)
    loss_spike: LossSpikeState = field(default_factory=LossSpikeState)
    faults: FaultsState = field(default_factory=FaultsState)
    traces: TracesState = field(default_factory=TracesState)
    profiles: ProfilesState = field(default_factory=ProfilesState)
    execs: ExecsState = field(default_factory=ExecsState)

    def to_json(self) -> bytes:
        return json_codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes) -> "GangState":
        """Raises JournalUnreadable."""
        try:
            return json_codec.loads(cls, data)
        except ValueError as error:
            raise JournalUnreadable(f"the journal's state does not fit version {VERSION}: {error}") from error


def schema() -> dict[str, Any]:
    """The format that `VERSION` names."""
    return {"version": VERSION, "state": json_codec.schema(GangState)}
