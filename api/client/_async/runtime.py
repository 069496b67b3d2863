"""What the asynchronous client runs on. `_sync/runtime.py` has the same names for the blocking one."""

from asyncio import Semaphore, TaskGroup, sleep, to_thread
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing as closing
from typing import TypeVar

from httpx2 import AsyncClient as HttpClient

__all__ = ["Answer", "HttpClient", "at_once", "closing", "for_each", "in_thread", "sleep", "stay"]

T = TypeVar("T")

#: What a call returns.
Answer = Awaitable


def at_once(call: Callable[[], Answer[T]]) -> T | None:
    """None: a notebook renders a job in a context that cannot await."""
    del call
    return None


async def in_thread(call: Callable[[], T]) -> T:
    """The result of a call that may take a while."""
    return await to_thread(call)


def stay() -> None:
    """Does nothing: a task that is to end is cancelled where it waits."""


async def for_each(do: Callable[[T], Answer[None]], things: Sequence[T], at_once: int) -> None:
    """Call `do` for each thing, at most `at_once` at a time. After the first error no further one begins; it is raised."""
    room = Semaphore(at_once)

    async def one(thing: T) -> None:
        async with room:
            await do(thing)

    try:
        async with TaskGroup() as group:
            for thing in things:
                group.create_task(one(thing))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
