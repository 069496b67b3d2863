"""What the asynchronous client runs on. `_sync/runtime.py` has the same names for the blocking one."""

from asyncio import sleep, to_thread
from collections.abc import Awaitable, Callable
from contextlib import aclosing as closing
from typing import TypeVar

from httpx2 import AsyncClient as HttpClient

__all__ = ["Answer", "HttpClient", "at_once", "closing", "in_thread", "sleep"]

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
