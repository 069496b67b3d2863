"""What the blocking client runs on. `_async/runtime.py` has the same names for the asynchronous one."""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import closing
from contextvars import ContextVar
from threading import Event
from time import sleep
from typing import Annotated, Final, TypeVar

from httpx2 import Client as HttpClient

__all__ = ["Answer", "HttpClient", "at_once", "closing", "for_each", "in_thread", "sleep", "stay"]

T = TypeVar("T")

#: What a call returns.
Answer = Annotated[T, "at once"]
#: Whether the call of `for_each` in which this thread works has failed.
_FAILED: Final[ContextVar[Event]] = ContextVar("failed")


def at_once(call: Callable[[], Answer[T]]) -> T | None:
    """What a call returns."""
    return call()


def in_thread(call: Callable[[], T]) -> T:
    """The result of a call that may take a while."""
    return call()


def stay() -> None:
    """Raises CancelledError in a call of `for_each` that has failed: no thread can be cancelled where it waits."""
    failed = _FAILED.get(None)
    if failed is not None and failed.is_set():
        raise CancelledError


def for_each(do: Callable[[T], Answer[None]], things: Sequence[T], at_once: int) -> None:
    """Call `do` for each thing, at most `at_once` at a time. After the first error no further one begins; it is raised.

    The others end where they call `stay`.
    """
    failed = Event()
    with ThreadPoolExecutor(at_once, initializer=_FAILED.set, initargs=(failed,)) as pool:
        try:
            for done in as_completed([pool.submit(do, thing) for thing in things]):
                done.result()
        except BaseException:
            failed.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
