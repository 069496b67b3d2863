"""What orders threads of the host: starting and joining them, giving work to an executor, and waiting for its result."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from .vector_clocks import host, host_of

#: Under this name a future keeps the clock of the thread that ran its work.
_CLOCK: Final = "_shardyard_clock"


@contextmanager
def followed(inside: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Keep the clocks of threads that are started within. Each runs inside `inside()`."""
    thread, executor, future = threading.Thread, ThreadPoolExecutor, Future
    given = (thread.start, thread.join, executor.submit, future.result, future.exception)
    patched: Any = (_start(given[0], inside), _join(given[1]), _submit(given[2]), _got(given[3]), _got(given[4]))
    (thread.start, thread.join, executor.submit, future.result, future.exception) = patched  # type: ignore[method-assign]
    try:
        yield
    finally:
        (thread.start, thread.join, executor.submit, future.result, future.exception) = given  # type: ignore[method-assign]


def _start(given: Any, inside: Callable[[], AbstractContextManager[Any]]) -> Any:
    def start(thread: threading.Thread) -> None:
        host_of(thread).follow(host().clock)
        work = thread.run

        def run() -> None:
            with inside():
                work()

        thread.run = run  # type: ignore[method-assign]
        given(thread)

    return start


def _join(given: Any) -> Any:
    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        given(thread, timeout)
        if not thread.is_alive():
            host().follow(host_of(thread).clock)

    return join


def _submit(given: Any) -> Any:
    def submit(executor: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        before, after = dict(host().clock), {}

        def run() -> Any:
            host().follow(before)
            try:
                return work(*args, **kwargs)
            finally:
                after.update(host().clock)

        future: Future[Any] = given(executor, run)
        setattr(future, _CLOCK, after)
        return future

    return submit


def _got(given: Any) -> Any:
    def got(future: "Future[Any]", timeout: float | None = None) -> Any:
        try:
            return given(future, timeout)
        finally:
            if future.done():
                host().follow(getattr(future, _CLOCK, {}))

    return got
