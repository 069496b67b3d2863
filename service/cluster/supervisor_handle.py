"""Typed calls to a gang's supervisor. Each waits for a limited time, and raises TimeoutError or RayError without an answer."""

import time
from collections.abc import Awaitable, Sequence
from typing import Any

from ...workers.messages.exec_request import Exec
from ...workers.messages.fault_request import Fault
from ...workers.messages.profile_request import Profile
from ...workers.messages.secret import Secret
from ...workers.messages.trace_request import Trace
from ...workers.supervisor.ranks.handles import within
from .interface import Pull, UserOrder
from .ray_connection import ANSWER_S, CONNECT_S


class SupervisorHandle:
    """The supervisor actor of one gang, perhaps of an earlier version. `deliver` calls its method for the order."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor  # as Ray has it

    async def begin(self) -> None:
        """Start the gang. No effect if that was done."""
        await within(CONNECT_S, self.actor.begin.remote())

    async def pull(self, after: int, wait_s: float) -> Pull:
        """Events after number `after`; acknowledges those up to it. Waits up to `wait_s` for the first."""
        answer: dict[str, Any] = await within(wait_s + ANSWER_S, self.actor.pull.remote(after, wait_s))
        behind_s = time.time() - answer["now"] if "now" in answer else 0.0
        missed = answer.get("misses_secrets", False)
        return Pull(answer["events"], answer["last"], answer.get("version", 0), missed, behind_s)

    async def stop(self, reason: str) -> None:
        """End the gang (`reason`: cancel, preempt); returns when its final event is emitted."""
        await within(ANSWER_S, self.actor.stop.remote(reason))

    async def deliver(self, order: UserOrder) -> bool:
        """Give it an order; returns when its journal has it. False if it does not know orders of this kind, or cannot read this one."""
        try:
            call = self._begin_delivery(order)
        except AttributeError:  # Ray's handle has the methods of the class by which the supervisor was started
            return False
        return await within(ANSWER_S, call) is not False  # earlier versions return nothing

    async def provide_secrets(self, secrets: Sequence[Secret]) -> None:
        """Send the secrets that a pull misses."""
        await within(ANSWER_S, self.actor.provide_secrets.remote([secret.to_json() for secret in secrets]))

    async def close(self) -> None:
        """Remove ranks and placement group. The supervisor then exits."""
        await within(ANSWER_S, self.actor.close.remote())

    def _begin_delivery(self, order: UserOrder) -> Awaitable[bool | None]:
        match order:
            case Fault():
                method = self.actor.inject_fault
            case Exec():
                method = self.actor.execute
            case Profile():
                method = self.actor.profile
            case Trace():
                method = self.actor.trace
        call: Awaitable[bool | None] = method.remote(order.to_json())
        return call
