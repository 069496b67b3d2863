"""Two functions that run by turns on two threads: coroutines that need not be written as such.

A function hands over its turn where it would only wait, as for a collective that it has started. Exactly one of the two runs at any
time. So they need no locks, and the order of all that they do depends on the functions alone, never on how long something takes.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any, Protocol


class Kept(Protocol):
    """State of the process that each of the two functions has for itself, such as its open spans."""

    def capture(self) -> Any:
        """The state of the function that runs."""

    def restore(self, state: Any) -> None:
        """The function that has this state runs from now on."""


class Abandoned(RuntimeError):
    """The other function has failed, so this one ends, too."""


class _Side:
    """One of the two functions. `running`: whether it has its turn, as its own thread knows it."""

    def __init__(self, running: bool) -> None:
        self.running = running
        self.turn = threading.Semaphore(0)
        self.states: list[Any] = []

    def wait(self) -> None:
        """Wait until it is this side's turn."""
        self.turn.acquire()
        self.running = True


class Turns:
    """Runs two functions at a time, any number of times one after the other."""

    def __init__(self) -> None:
        self._kept: Sequence[Kept] = ()
        self._now: _Side | None = None  # has its turn
        self._next: _Side | None = None  # waits for its turn, until it has ended
        self._failure: BaseException | None = None  # of the function that failed first

    @property
    def shared(self) -> bool:
        """Whether there is a function to which the one that runs can hand over."""
        return self._next is not None

    def run(self, first: Callable[[], None], second: Callable[[], None], kept: Sequence[Kept], pool: Executor) -> None:
        """Run both. `first` begins, on this thread; `second` is run by `pool`, in the context variables of this thread.

        Returns when both have ended. Raises what the function raised that failed first; the other one is ended by `Abandoned`, where it
        hands over.
        """
        here, there = _Side(running=True), _Side(running=False)
        self._kept, self._failure = kept, None
        there.states = self._captured()
        self._now, self._next = here, there
        ended = pool.submit(copy_context().run, self._run_second, there, second)
        try:
            first()
        except BaseException as error:  # noqa: BLE001  (raised below, when both have ended)
            self._fail(error)
            if not here.running:  # a signal's handler has raised while it waited
                here.wait()
        outlived = self._next is not None
        self._end(here)
        ended.result()
        if outlived:
            self._restore(here.states)
        failure, self._failure, self._now, self._kept = self._failure, None, None, ()
        if failure is not None:
            raise failure

    def yield_turn(self) -> None:
        """Let the other function run until it hands over or ends. Returns at once if it has ended. Raises `Abandoned` if it has failed."""
        self._check()
        mine, other = self._now, self._next
        if mine is None or other is None:
            return
        mine.running = False
        self._switch(mine, other, mine)
        mine.wait()
        self._check()

    def _run_second(self, side: _Side, second: Callable[[], None]) -> None:
        side.wait()
        try:
            if self._failure is None:
                second()
        except BaseException as error:  # noqa: BLE001  (raised by `run`)
            self._fail(error)
        self._end(side)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise Abandoned("the other one of two functions that run by turns has failed") from self._failure

    def _end(self, mine: _Side) -> None:
        """This side has ended: the other one goes on, alone."""
        if self._next is None:
            return
        mine.running = False
        self._switch(mine, self._next, None)

    def _switch(self, mine: _Side, other: _Side, waiting: _Side | None) -> None:
        """Give the turn to `other`. From now on `waiting` is who has the turn after it."""
        mine.states = self._captured()
        self._restore(other.states)
        self._now, self._next = other, waiting
        other.turn.release()

    def _captured(self) -> list[Any]:
        return [one.capture() for one in self._kept]

    def _restore(self, states: Sequence[Any]) -> None:
        for one, state in zip(self._kept, states, strict=True):
            one.restore(state)
