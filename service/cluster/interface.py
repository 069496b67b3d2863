"""What a dispatcher needs of a cluster: start, hear, stop and clear away gangs, see to checkpoints. Ray's way of it is `ray_cluster.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...workers.messages.fault_request import Fault
from ...workers.messages.trace_request import Trace
from ...workers.supervisor.policies.loss_spike import Bounds
from ...workers.supervisor.policies.straggler import Limits
from ...workers.tasks.checkpoint_task import Operation, Outcome
from ..schemas.node import ClusterNode


@dataclass(frozen=True)
class GangOrder:
    """One attempt: `world_size` ranks, each `tensor` neighbours of them on one node; `run` is a `workers.spec.Run`."""

    name: str  # identity.gang_name
    run: dict[str, Any]
    world_size: int
    tensor: int
    device: str
    submitted_at: float  # unix seconds of the job's creation
    repairs: int = 0  # so often the gang may be repaired in place
    hang_s: float | None = None  # without progress for so long it hangs; None: it is never asked
    straggler: Limits | None = None  # when a rank is one; None: nobody looks for any
    loss_spike: Bounds | None = None  # when a loss is one; None: none is
    avoided: tuple[str, ...] = ()  # ids of nodes to which it must not go
    elastic_grace_s: float | None = None  # how long it waits for lost devices, where the job may go on with fewer
    spares: int = 0  # actors, each on a device of its own, that wait for the rank of one that dies


@dataclass(frozen=True)
class Pull:
    """A batch of events in order."""

    events: list[dict[str, Any]]
    last: int  # number of the gang's newest event
    version: int  # of the gang's events (`workers/messages/event.py`); 0 if it does not say


class Cluster(Protocol):
    """Every method raises ClusterError when the cluster does not answer in time; its effect is unknown then."""

    async def connect(self) -> None: ...

    async def nodes(self) -> list[ClusterNode]: ...

    async def start_gang(self, order: GangOrder) -> None:
        """Returns before the gang trains. Harmless when the gang is there already, also when it has ended."""

    async def pull(self, gang: str, after: int, wait_s: float) -> Pull:
        """Events after number `after`, which acknowledges those up to it: what is acknowledged never comes again, whoever asks.

        Waits up to `wait_s` for the first event, and returns none when none came. Raises GangLost, also when the gang is closed meanwhile.
        """

    async def stop(self, gang: str, reason: str) -> None:
        """Ask a gang to end (`reason`: cancel, preempt); its last event says that it has. Harmless when repeated, and once it has ended.

        Raises GangLost.
        """

    async def inject(self, gang: str, fault: Fault) -> None:
        """Order a fault of the gang, which carries it out once, however often it is ordered. Raises GangLost."""

    async def trace(self, gang: str, trace: Trace) -> None:
        """Order a trace of the gang's next steps, which it records once, however often it is ordered. Raises GangLost."""

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        """Have a checkpoint seen to, on this node where it lives; ended when the caller is cancelled."""

    async def tokenize(self, data: Mapping[str, Any]) -> None:
        """Have the corpus of a spec's `data` tokenised where its gang will read it, beside what trains; ended when the caller is cancelled.

        A cluster that cannot know where does nothing. ClusterError also when the corpus cannot be read.
        """

    async def close_gang(self, gang: str) -> None:
        """Clear away whatever is left of a gang, which is lost to all who ask it from now on; harmless when nothing is left."""

    async def gangs(self) -> list[str]:
        """Names of the gangs of which anything is left, in order; a gang that ended is among them until it is closed."""
