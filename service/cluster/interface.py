"""What a dispatcher needs of a cluster: start, pull, stop and close gangs, run checkpoint operations.

`ray_cluster.py` implements it with Ray.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...workers.messages.exec_request import Exec
from ...workers.messages.fault_request import Fault
from ...workers.messages.gang_spec import GangSpec
from ...workers.messages.profile_request import Profile
from ...workers.messages.secret import Secret
from ...workers.messages.trace_request import Trace
from ...workers.tasks.checkpoint_task import Operation, Outcome
from ..schemas.node import ClusterNode

#: What users order of a running gang: a fault, a trace of its next steps, a profile of a rank, or a command beside it.
UserOrder = Fault | Trace | Profile | Exec


@dataclass(frozen=True)
class Pull:
    """A batch of events in order."""

    events: list[dict[str, Any]]
    last: int  # number of the gang's newest event
    version: int  # of the gang's events (`workers/messages/event.py`); 0 if it reports none
    misses_secrets: bool = False  # ranks wait for `provide_secrets`
    behind_s: float = 0.0  # of the clock of the gang's node, to this one; 0 if the gang does not report its time


class Cluster(Protocol):
    """Every method raises ClusterError when the cluster does not answer in time. Whether it had an effect is unknown then."""

    async def connect(self) -> None: ...

    async def nodes(self) -> list[ClusterNode]: ...

    async def start_gang(self, spec: GangSpec) -> None:
        """Returns before the gang trains. Harmless when the gang already exists, also when it has ended."""

    async def pull(self, gang: str, after: int, wait_s: float) -> Pull:
        """Events after number `after`, which acknowledges those up to it. An acknowledged event is never returned again, to any caller.

        Waits up to `wait_s` for the first event; returns no events if none came. Raises GangLost, also when the gang is closed meanwhile.
        """

    async def stop(self, gang: str, reason: str) -> None:
        """Request that a gang ends (`reason`: cancel, preempt). Its last event reports that it has.

        Harmless when repeated, and after its end. Raises GangLost.
        """

    async def deliver(self, gang: str, order: UserOrder) -> bool:
        """Give the gang an order, which it carries out once, even if it is delivered repeatedly. Raises GangLost.

        Returns whether the gang has it: one that an earlier version of this service started may not know this kind of order.
        """

    async def provide_secrets(self, gang: str, secrets: Sequence[Secret]) -> None:
        """Send the secrets that a pull misses. Harmless when repeated. Raises GangLost."""

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        """Run a checkpoint operation, on `node` if given, where the checkpoint is. Cancelling the caller ends it."""

    async def tokenize(self, data: Mapping[str, Any]) -> None:
        """Tokenize the corpus of a spec's `data` on the machine whose gang will read it, beside training. Cancelling ends it.

        Does nothing if the cluster cannot determine that machine. Raises ClusterError also when the corpus cannot be read.
        """

    async def close_gang(self, gang: str) -> None:
        """Remove everything that is left of a gang. From then on its calls raise GangLost. Harmless when nothing is left."""

    async def gangs(self) -> list[str]:
        """Names of the gangs that still exist in some part, in order. A gang that ended is among them until it is closed."""
