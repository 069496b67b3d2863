"""Calls that may take long run in daemon threads, so that a rank that is to end does not wait for their answers."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from ..shared_folder import EndRequested
from .remote import Unanswered

T = TypeVar("T")

#: Seconds between two looks at whether the rank is to end.
LOOK_S: Final = 0.2
#: Seconds before each further try of a source that did not answer.
BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0)


def begun(do: Callable[[], T], name: str) -> "Future[T]":
    """The future of the result of `do`, which runs in a thread that does not keep the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001  (top of a thread: who waits gets it)
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def result_of(future: "Future[T]", is_to_stop: Callable[[], bool]) -> T:
    """The future's result. Raises what it raises, and EndRequested."""
    while True:
        try:
            return future.result(timeout=LOOK_S)
        except TimeoutError:
            if future.done():  # the call itself timed out, or it has ended just now
                return future.result()
            if is_to_stop():
                raise EndRequested from None


def tried(do: Callable[[], T], is_to_stop: Callable[[], bool]) -> T:
    """The result, after further tries where the source does not answer. Raises what the last one raises, and EndRequested."""
    for seconds in BACKOFF_S:
        try:
            return do()
        except Unanswered as error:
            until = time.monotonic() + max(seconds, error.wait_s)
        while time.monotonic() < until:
            if is_to_stop():
                raise EndRequested
            time.sleep(LOOK_S)
    return do()
