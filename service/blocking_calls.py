"""Threads for calls that take long and cannot be interrupted, such as on a file system that does not answer.

Such a call keeps its turn until it ends. It delays others of its kind, but no other request, and not the end of the process, because the
threads are daemons.
"""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class BlockingCalls:
    """The calls of one kind in one process, `at_once` at the same time. `waiting`: calls that wait for a turn."""

    def __init__(self, name: str, at_once: int, limit_s: float) -> None:
        self._name, self._limit_s = name, limit_s
        self._turns = asyncio.Semaphore(at_once)
        self.waiting = 0

    async def do(self, work: Callable[[], T]) -> T:
        """Returns and raises as `work`. Raises TimeoutError after the time limit, which includes the wait for a turn; `work` then ends
        when it can. Raises BlockingIOError if the machine starts no thread."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self._turn()
                return await self._begun(work)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"No answer within {self._limit_s:g} s") from None

    async def _turn(self) -> None:
        self.waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self.waiting -= 1

    def _begun(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """The future of the work's result. The turn ends when the work ends."""
        return _in_thread(self._name, work, self._turns.release)


async def in_own_thread(name: str, work: Callable[[], T]) -> T:
    """Returns and raises as `work`. Its thread is new: it waits for no other call, as those of `asyncio.to_thread` do if all its threads
    are taken."""
    return await _in_thread(name, work, lambda: None)


def _in_thread(name: str, work: Callable[[], T], ended: Callable[[], None]) -> "asyncio.Future[T]":
    """The future of the work's result. `ended` is called when the work ends, also if no caller waits any more.

    Raises BlockingIOError if the machine starts no thread.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def end(settle: Callable[[], None]) -> None:
        ended()
        if not result.done():
            settle()

    def run() -> None:
        try:
            found = work()
            settle = lambda: result.set_result(found)  # noqa: E731
        except Exception as error:  # noqa: BLE001  (top of a thread: the caller's future gets it)
            failed = error
            settle = lambda: result.set_exception(failed)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # the loop has closed: no caller waits
            loop.call_soon_threadsafe(end, settle)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        ended()
        raise BlockingIOError(errno.EAGAIN, "No thread can be started") from error
    return result
