"""One read for all who ask the same: whoever comes while it is under way, or soon after, gets what it found.

A key must say how fresh the answer is to be, for nothing is ever read again under the same one. A read that fails is forgotten, and all
who waited for it hear why. Whoever leaves does not stop it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: So many answers are kept, of which each is as large as one batch of a stream.
KEPT: Final = 32


class SharedReads(Generic[T]):
    """Answers by what was asked, the latest `KEPT` of them."""

    def __init__(self) -> None:
        self._reads: OrderedDict[Hashable, asyncio.Task[T]] = OrderedDict()

    async def of(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` found, whoever has called it under this key."""
        if key not in self._reads:
            self._reads[key] = asyncio.ensure_future(_awaited(read))
            self._reads[key].add_done_callback(lambda task: self._forget_failed(key, task))
            if len(self._reads) > KEPT:
                self._reads.popitem(last=False)
        return await asyncio.shield(self._reads[key])

    def _forget_failed(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._reads.get(key) is task and (task.cancelled() or task.exception() is not None):
            del self._reads[key]


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
