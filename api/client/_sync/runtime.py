"""What the blocking client runs on. `_async/runtime.py` has the same names for the asynchronous one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from time import sleep
from typing import Annotated, TypeVar

from httpx2 import Client as HttpClient

__all__ = ["Answer", "HttpClient", "at_once", "closing", "for_each", "in_thread", "sleep"]

T = TypeVar("T")

#: What a call returns.
Answer = Annotated[T, "at once"]


def at_once(call: Callable[[], Answer[T]]) -> T | None:
    """What a call returns."""
    return call()


def in_thread(call: Callable[[], T]) -> T:
    """The result of a call that may take a while."""
    return call()


def for_each(do: Callable[[T], Answer[None]], things: Sequence[T], at_once: int) -> None:
    """Call `do` for each thing, at most `at_once` at a time. After the first error no further one begins; it is raised."""
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for done in as_completed([pool.submit(do, thing) for thing in things]):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
