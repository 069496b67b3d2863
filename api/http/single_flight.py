"""Shares one read among equal requests: a caller that comes during a read, or soon after it, gets the same result.

A key must include how fresh the answer is to be, because a result is kept for its key. If a read fails, it is dropped, and all
callers that wait for it receive its error. A caller that leaves does not stop the read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Maximum number of kept answers, each of which is as large as one batch of a stream.
KEPT: Final = 32


class SharedReads(Generic[T]):
    """Results by key, the latest `KEPT` of them."""

    def __init__(self) -> None:
        self._reads: OrderedDict[Hashable, asyncio.Task[T]] = OrderedDict()

    async def of(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """The result of `read`, which only the first caller with this key starts."""
        if key not in self._reads:
            self._reads[key] = asyncio.ensure_future(_awaited(read))
            self._reads[key].add_done_callback(lambda task: self._forget_failed(key, task))
            if len(self._reads) > KEPT:
                self._reads.popitem(last=False)
        return await asyncio.shield(self._reads[key])

    def forget(self, which: Callable[[Hashable], bool]) -> None:
        """Drop the results of some keys. Who waits for one receives it."""
        for key in [key for key in self._reads if which(key)]:
            del self._reads[key]

    def _forget_failed(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._reads.get(key) is task and (task.cancelled() or task.exception() is not None):
            del self._reads[key]


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
