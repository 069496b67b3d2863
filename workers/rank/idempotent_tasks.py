"""Work that is requested by an id, maybe several times, and done once, by default one after the other. Needs neither Ray nor torch."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Results that are kept for one that asks again.
MOST_KEPT: Final = 100


class IdempotentTasks(Generic[T]):
    """The tasks of one kind, of which at most `at_once` run together. A caller that is cancelled cancels none."""

    def __init__(self, at_once: int = 1) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._room = asyncio.Semaphore(at_once)

    async def run(self, name: str, do: Callable[[], Awaitable[T]] | None) -> T | None:
        """The result of `do`, which is called once for each name, when there is room for it.

        `do` is None where it cannot be done now: then this is the result of the earlier call, or None if there was none. A call that
        raises is forgotten, so that a later one may succeed.
        """
        if name not in self._tasks:
            if do is None:
                return None
            for old in [known for known, task in self._tasks.items() if task.done()][:-MOST_KEPT]:
                del self._tasks[old]
            self._tasks[name] = asyncio.get_running_loop().create_task(self._next(name, do))
        return await asyncio.shield(self._tasks[name])

    async def _next(self, name: str, do: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._room:
                return await do()
        except Exception:
            del self._tasks[name]
            raise
