"""An event loop with a clock of its own: sleeping costs no time and moves the clock on, and each time that it would sleep is counted.

What is read from its pipes and sockets is there at once, or never: nothing outside of the loop may write to them.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Clock(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wakes = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout is None or timeout > 0:
            assert ready or timeout is not None, "everything waits, and for nothing that this loop does"
            self.wakes += 1
            self.now += 0.0 if ready else timeout or 0.0
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`wakes`: how often a process with this loop would have slept and been woken."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    @property
    def wakes(self) -> int:
        return self._clock.wakes


def run_virtually(work: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    """What `work` returns, on a loop that it gets and that is closed behind it."""

    async def whole() -> T:
        loop: Any = asyncio.get_running_loop()
        return await work(loop)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(whole())
