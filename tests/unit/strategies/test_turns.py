"""Two functions run by turns: one at a time, in the order of their turns, each with its own state; and one failure ends both."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from shardyard.strategies.turns import Abandoned, Turns


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "second") as found:
        yield found
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("second")]


def speaker(turns: Turns, said: list[str], name: str, times: int) -> Callable[[], None]:
    """A function that hands over after each line but its last."""

    def speak() -> None:
        for number in range(times):
            said.append(f"{name}{number}")
            if number < times - 1:
                turns.yield_turn()

    return speak


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        (1, 1, "f0 s0"),
        (3, 3, "f0 s0 f1 s1 f2 s2"),
        (1, 3, "f0 s0 s1 s2"),
        (4, 2, "f0 s0 f1 s1 f2 f3"),
    ],
)
def test_turns_alternate_until_one_has_ended(first: int, second: int, order: str, pool: ThreadPoolExecutor) -> None:
    turns = Turns()
    for _ in range(2):  # one pair of functions after the other
        said: list[str] = []
        turns.run(speaker(turns, said, "f", first), speaker(turns, said, "s", second), (), pool)
        assert said == order.split()
        assert not turns.shared


def test_no_function_runs_in_the_turn_of_the_other(pool: ThreadPoolExecutor) -> None:
    turns, running = Turns(), [0]

    def busy() -> None:
        for _ in range(200):
            running[0] += 1
            assert running == [1]
            threading.Event().wait(1e-6)  # the other thread may run, if nothing holds it
            running[0] -= 1
            turns.yield_turn()

    turns.run(busy, busy, (), pool)


def test_the_second_function_has_a_thread_of_its_own_and_the_context_of_the_first(pool: ThreadPoolExecutor) -> None:
    value: ContextVar[int] = ContextVar("value", default=0)
    found: list[Any] = []

    def look() -> None:
        found.append((value.get(), threading.current_thread().name))

    value.set(7)
    Turns().run(look, look, (), pool)
    assert found == [(7, threading.main_thread().name), (7, "second_0")]


def test_alone_a_function_hands_over_to_none(pool: ThreadPoolExecutor) -> None:
    turns, shared = Turns(), []
    turns.yield_turn()

    def first() -> None:
        shared.append(turns.shared)
        turns.yield_turn()
        shared.append(turns.shared)  # the second has ended
        turns.yield_turn()

    turns.run(first, lambda: None, (), pool)
    assert shared == [True, False]


class Variable:
    """A variable of the process, of which each function has its own value."""

    def __init__(self) -> None:
        self.value = "before"

    def capture(self) -> str:
        return self.value

    def restore(self, state: str) -> None:
        self.value = state


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 2), (3, 3)])
def test_each_function_has_its_own_state_and_the_first_ones_stays(
    first: int, second: int, pool: ThreadPoolExecutor
) -> None:
    turns, variable = Turns(), Variable()

    def sets(name: str, times: int) -> Callable[[], None]:
        def run() -> None:
            assert variable.value == "before"
            for number in range(times):
                variable.value = f"{name}{number}"
                turns.yield_turn()
                assert variable.value == f"{name}{number}"

        return run

    turns.run(sets("f", first), sets("s", second), (variable,), pool)
    assert variable.value == f"f{first - 1}"


class Broken(Exception):
    """What one of the two raises."""


def ends(turns: Turns, said: list[str], name: str, fails_at: int | None) -> Callable[[], None]:
    def run() -> None:
        try:
            for number in range(4):
                if number == fails_at:
                    raise Broken(name)
                said.append(f"{name}{number}")
                turns.yield_turn()
        except Abandoned as error:
            said.append(f"{name} abandoned")
            raise RuntimeError("torch wraps what a pass raises") from error

    return run


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (2, None, "f0 s0 f1 s1 s:abandoned"),
        (None, 2, "f0 s0 f1 s1 f2 f:abandoned"),
        (0, None, ""),
        (None, 0, "f0 f:abandoned"),
        (2, 2, "f0 s0 f1 s1 s:abandoned"),
    ],
)
def test_the_failure_of_one_ends_both_with_its_cause(
    first: int | None, second: int | None, said: str, pool: ThreadPoolExecutor
) -> None:
    turns, found = Turns(), []
    failing = "f" if first is not None else "s"
    with pytest.raises(Broken, match=failing):
        turns.run(ends(turns, found, "f", first), ends(turns, found, "s", second), (), pool)
    assert [line.replace(" ", ":") for line in found] == said.split()
    assert not turns.shared
    again: list[str] = []
    turns.run(speaker(turns, again, "f", 2), speaker(turns, again, "s", 2), (), pool)
    assert again == ["f0", "s0", "f1", "s1"]


def test_a_signal_while_the_first_one_waits_ends_both(pool: ThreadPoolExecutor) -> None:
    """Python runs the handlers of signals in the main thread, whatever it waits for."""
    import signal

    turns, said = Turns(), []

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    def second() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        threading.Event().wait(0.05)  # so that the handler runs before the turn is handed back
        said.append("in its turn")
        turns.yield_turn()
        said.append("never")

    before = signal.signal(signal.SIGUSR1, stopped)
    try:
        with pytest.raises(KeyboardInterrupt):
            turns.run(turns.yield_turn, second, (), pool)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == ["in its turn"]
