"""What the blocking client runs on. `_async/runtime.py` has the same names for the asynchronous one."""

from collections.abc import Callable
from contextlib import closing
from time import sleep
from typing import Annotated, TypeVar

from httpx2 import Client as HttpClient

__all__ = ["Answer", "HttpClient", "at_once", "closing", "in_thread", "sleep"]

T = TypeVar("T")

#: What a call returns.
Answer = Annotated[T, "at once"]


def at_once(call: Callable[[], Answer[T]]) -> T | None:
    """What a call returns."""
    return call()


def in_thread(call: Callable[[], T]) -> T:
    """The result of a call that may take a while."""
    return call()
