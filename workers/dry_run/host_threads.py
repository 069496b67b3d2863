"""What orders threads of the host: starting and joining them, giving work to an executor, waiting for its result, and semaphores.

A thread that waits for a semaphore as long as it takes comes after all those that have released it. One that looks whether it is free,
as executors do, may find it so by luck.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from .vector_clocks import host, host_of

#: Under this name a future keeps the clock of the thread that ran its work, and a semaphore those of threads that released it.
_CLOCK: Final = "_shardyard_clock"


@contextmanager
def followed(inside: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Keep the clocks of threads that are started within. Each runs inside `inside()`."""
    thread, executor, future, semaphore = threading.Thread, ThreadPoolExecutor, Future, threading.Semaphore
    given = (thread.start, thread.join, executor.submit, future.result, future.exception)
    turns = (semaphore.acquire, semaphore.release)
    patched: Any = (_start(given[0], inside), _join(given[1]), _submit(given[2]), _got(given[3]), _got(given[4]))
    patched_turns: Any = (_acquire(turns[0]), _release(turns[1]))
    (thread.start, thread.join, executor.submit, future.result, future.exception) = patched  # type: ignore[method-assign]
    (semaphore.acquire, semaphore.release) = patched_turns  # type: ignore[method-assign]
    try:
        yield
    finally:
        (thread.start, thread.join, executor.submit, future.result, future.exception) = given  # type: ignore[method-assign]
        (semaphore.acquire, semaphore.release) = turns  # type: ignore[method-assign]


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


def _acquire(given: Any) -> Any:
    def acquire(semaphore: threading.Semaphore, blocking: bool = True, timeout: float | None = None) -> bool:
        acquired: bool = given(semaphore, blocking, timeout)
        if acquired and blocking and timeout is None:
            host().follow(getattr(semaphore, _CLOCK, {}))
        return acquired

    return acquire


def _release(given: Any) -> Any:
    def release(semaphore: threading.Semaphore, n: int = 1) -> None:
        clock = dict(host().clock)
        for actor, time in getattr(semaphore, _CLOCK, {}).items():
            clock[actor] = max(time, clock.get(actor, 0))
        setattr(semaphore, _CLOCK, clock)
        given(semaphore, n)

    return release
