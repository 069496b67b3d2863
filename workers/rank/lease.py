"""Ends a rank actor that no supervisor has called for the length of its lease, and its trainer. Every call renews the lease.

This is no lease of a job: a dispatcher renews those (`service/dispatch/lease_renewal.py`).
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable


class Lease:
    """Renewed by every call of a supervisor."""

    def __init__(self, length_s: float, end: Callable[[], None]) -> None:
        """`end()`: called when the lease has expired, before the process exits."""
        self.length_s = length_s
        self._end = end
        self._renewed = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    def renew(self) -> None:
        self._renewed = time.monotonic()

    def begin(self) -> None:
        """Start the lease; it can expire from now on. No effect if it has started."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._expire())

    async def _expire(self) -> None:
        left = self.length_s
        while left > 0:
            await asyncio.sleep(left)
            left = self._renewed + self.length_s - time.monotonic()
        self._end()
        await asyncio.to_thread(leave)


def leave() -> None:
    """End this actor's process. Ray does not count its own kill as a crash. If that takes over five seconds, exit directly."""
    threading.Timer(5.0, os._exit, (0,)).start()
    import ray

    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
