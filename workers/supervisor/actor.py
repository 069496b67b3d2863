"""The supervisor actor: it owns the ranks of one attempt, and is the only one that reports on them.

Rules that it keeps: events are numbered once, in order, and dropped only when the dispatcher has acknowledged them; when no
dispatcher takes them, ranks wait rather than lose steps. It outlives the control plane, for at most `ABANDONED_S`.

When it dies, Ray restarts it, and it continues from its journal in the phase in which it died. Meanwhile the ranks train on, each until
its lease expires.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ..messages.event import VERSION
from ..messages.event_buffer import Spool
from ..messages.exec_request import Exec
from ..messages.fault_request import Fault
from ..messages.gang_spec import GangSpec
from ..messages.other_version import reading_orders
from ..messages.profile_request import Profile
from ..messages.secret import Secret
from ..messages.trace_request import Trace
from ..rank.lease import leave
from .gang import Gang
from .gang_secrets import GangSecrets
from .gang_state import GangState, JournalUnreadable, PendingExec, PendingFault, PendingTrace
from .journal.journal import Journal
from .lifecycle import DRAIN_S, Lifecycle
from .orders import OrderQueue
from .policies.failures import Failure

#: Maximum bytes of events that the dispatcher has not acknowledged. They are also in the journal, in the memory of the cluster's head.
SPOOL_BYTES: Final = 16 << 20
#: Seconds that an event waits for those of other ranks, whose steps end together, before the dispatcher gets it.
LINGER_S: Final = 0.05
#: Seconds for which an ended gang, which holds no device, keeps its last events for a control plane that does not pull them.
ABANDONED_S: Final = 7 * 24 * 3600.0

T = TypeVar("T")
P = TypeVar("P")


class Supervisor:
    """The gang of one attempt, a detached Ray actor named like the gang."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """`spec`: a `GangSpec` as JSON. Raises OrdersUnreadable, for which Ray never restarts the actor."""
        with reading_orders():
            self.spec = GangSpec.from_json(spec)
        self.spool = Spool(SPOOL_BYTES)
        self.journal = Journal(self.spec.name, self.spool, lambda: self.gang.to_state().to_json())
        self.secrets = GangSecrets(self.spec.secrets)
        self._resume(None)
        self._called = time.monotonic()
        self._pulled = asyncio.Event()
        self._first_after = 0  # of the first pull
        self._beginning = asyncio.Lock()
        self._life: asyncio.Task[None] | None = None
        if _restarted():
            self._waking = asyncio.get_running_loop().create_task(self.begin(again=True))

    def _resume(self, state: GangState | None) -> None:
        self.gang = Gang(self.spec, self.journal, self.spool, self.secrets, state)
        self.lifecycle = Lifecycle(self.gang)

    # What the dispatcher calls.

    async def begin(self, again: bool = False) -> None:
        """Start the gang, or continue it. No effect if that was done. `again`: only if the gang was started before."""
        self._called = time.monotonic()
        async with self._beginning:
            if self._life is None and (life := await self._choose_life(again)) is not None:
                self._life = asyncio.get_running_loop().create_task(self._live(life))

    async def pull(self, after: int, wait_s: float) -> dict[str, Any]:
        """Events after `after` (at most 1000), waiting up to `wait_s`; acknowledges those up to `after`. `now`: this node's clock.

        Returns at once if ranks wait for the job's secrets, and says so.
        """
        await self.begin()
        if not self._pulled.is_set():
            self._first_after = after
            self._pulled.set()
        self.spool.take(after)
        await self._until_event_or_missed(after, wait_s)
        if self.spool.last > self.journal.last:
            await self.journal.settled()
        self._called = time.monotonic()
        written = self.journal.last
        events = [event for event in self.spool.take(after) if event["seq"] <= written]
        answer = {"version": VERSION, "events": events, "last": written, "misses_secrets": self.secrets.missed}
        return answer | {"now": time.time()}

    async def _until_event_or_missed(self, after: int, wait_s: float) -> None:
        waits = [asyncio.ensure_future(self.spool.wait(after, wait_s, LINGER_S))]
        if self.secrets.now is None:
            waits.append(asyncio.ensure_future(self.secrets.until_missed()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def provide_secrets(self, values: list[dict[str, Any]]) -> None:
        """The job's secrets, as `Secret.to_json`, for ranks that wait for them and those that start later."""
        self.secrets.provide([Secret.from_json(value) for value in values])

    async def stop(self, reason: str) -> None:
        """End the gang; returns when its final event is emitted. `preempt` saves first; `cancel` interrupts that, too."""
        await self.begin()
        self.lifecycle.stop(reason)
        assert self._life is not None
        await asyncio.wait([self._life])

    # Orders of users. Each returns when the journal has it, and has no effect if it has it already. False: this version cannot read it.

    async def inject_fault(self, order: dict[str, Any]) -> bool:
        """Order an injected fault (`fault_orders.py`)."""
        return await self._add(order, Fault.from_json, lambda fault: (self.gang.faults.queue, PendingFault(fault)))

    async def trace(self, order: dict[str, Any]) -> bool:
        """Order a step trace (`trace_orders.py`)."""
        return await self._add(order, Trace.from_json, lambda trace: (self.gang.traces.queue, PendingTrace(trace)))

    async def profile(self, order: dict[str, Any]) -> bool:
        """Order a profile (`profile_orders.py`)."""
        return await self._add(order, Profile.from_json, lambda profile: (self.gang.profiles.queue, profile))

    async def execute(self, order: dict[str, Any]) -> bool:
        """Order a command beside a rank (`exec_orders.py`)."""
        return await self._add(order, Exec.from_json, lambda command: (self.gang.execs.queue, PendingExec(command)))

    async def _add(
        self,
        order: dict[str, Any],
        read: Callable[[dict[str, Any]], T],
        pending: Callable[[T], tuple[OrderQueue[P], P]],
    ) -> bool:
        await self.begin()
        try:
            known = read(order)
        except ValueError:  # of a later version of the control plane: in the journal, no successor could read it
            return False
        queue, item = pending(known)
        await queue.add(str(order["id"]), item)
        self.lifecycle.run_orders()
        return True

    async def status(self) -> dict[str, Any]:
        members, spares = self.gang.members, self.gang.spares.all
        return {
            "pid": os.getpid(),
            "state": self.gang.merger.state,
            "last": self.spool.last,
            "ranks": [{"rank": m.rank, "node": m.node, "done": m.done, "exited": m.exited} for m in members],
            "spares": [{"name": spare.name, "node": spare.node} for spare in spares],
        }

    async def close(self) -> None:
        """Remove ranks and placement group. The supervisor then exits, and Ray does not restart it."""
        if self._life:
            self._life.cancel()
            await asyncio.wait([self._life], timeout=DRAIN_S)
        await self.journal.close()  # first: a successor that finds the ranks removed must not repair the gang
        await self.gang.placement.remove(self.gang.members)
        asyncio.get_running_loop().call_later(0.1, leave)

    # The life of the gang.

    async def _choose_life(self, again: bool) -> Coroutine[Any, Any, None] | None:
        """The coroutine that runs the gang; None if it was not started. Ends this process if ranks cannot be taken over."""
        try:
            predecessor = await self.journal.recall()
            if predecessor is None:
                return None if again else self.lifecycle.run()
            self._resume(GangState.from_json(predecessor))
            await self.lifecycle.adopt()
        except JournalUnreadable as error:
            return self.lifecycle.give_up(Failure("journal_unreadable", None, str(error)), self._newest_taken())
        except Exception:  # without a supervisor the gang is lost; the job's next attempt starts another one
            asyncio.get_running_loop().call_later(0.1, leave)
            raise
        return self.lifecycle.run()

    async def _newest_taken(self) -> int:
        """The number of the newest event that the dispatcher has acknowledged."""
        await self._pulled.wait()
        return self._first_after

    async def _live(self, life: Coroutine[Any, Any, None]) -> None:
        await life
        self._watch = asyncio.get_running_loop().create_task(self._exit_when_abandoned())

    async def _exit_when_abandoned(self) -> None:
        left = ABANDONED_S
        while left > 0:
            await asyncio.sleep(left)
            left = self._called + ABANDONED_S - time.monotonic()
        await self.close()


def _restarted() -> bool:
    """Whether Ray restarted this actor after its process died. A process that has not imported Ray is not an actor."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().was_current_actor_reconstructed
