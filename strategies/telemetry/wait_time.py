"""How long a rank is busy in a step and how long it waits for others: all steps take equally long, because all wait for the slowest.

    busy time of a rank = time from one meeting of all ranks to the next − time in which it needed others' results and did not have them

Code that needs such a result waits through `wait_on` (`current.py`), or within `waiting` around a pipeline's schedule, in which each
action is `busy` again. What is no part of a step, as validation, is `excluded`. CPUs are read by `perf_counter`; CUDA by events on the
stream that computes, which passes the second one when the collective is done. What is compiled is not looked into.
Events cost the host's time, so on CUDA only some steps are measured (`step_sampling.py`); the others take no moment.
Not seen: what torch's `fully_shard` waits for by itself, which is all of ZeRO-3's and ZeRO++'s on CUDA and the sums between HSDP's groups.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from .device_clock import Clock, HostClock

Mode = Literal["busy", "waiting", "excluded"]


@dataclass(frozen=True)
class StepTiming:
    """Seconds of a rank from one meeting with all others to the next, without what was excluded."""

    busy_s: float
    wait_s: float


class WaitClock:
    """Divides the training thread's time by mode while it is `running`, and does nothing else.

    `cost_s`: seconds that the host spent on it between the last two laps that were measured.
    `busy`, `waiting` and `excluded` are contexts, as often entered as needed. Within `excluded` all is excluded.
    """

    def __init__(self) -> None:
        self.busy, self.waiting, self.excluded = (
            _Within(self, "busy"),
            _Within(self, "waiting"),
            _Within(self, "excluded"),
        )
        self._clock: Clock = HostClock()
        self._since: Any = None
        self._modes: list[Mode] = []  # the innermost last
        self._turns: list[tuple[Any, Any, Mode]] = []
        self._measures = True
        self._spent_s = self.cost_s = 0.0

    @contextmanager
    def running(self, clock: Clock) -> Iterator[None]:
        """All time within is busy unless a context says otherwise."""
        self._clock = clock
        self._since, self._modes, self._turns = clock.now(), ["busy"], []
        self._measures, self._spent_s = True, 0.0
        try:
            yield
        finally:
            self._modes = []

    def end_step(self, then: bool = True) -> StepTiming | None:
        """The time since the last call; None if it was not measured. `then`: whether to measure until the next call.

        The device must have passed all of it: call it after the step's meeting of all ranks.
        """
        timing = self._timing() if self._measures else None
        if then and not self._measures and self._modes:
            self._since = self._clock.now()
        self._measures = then
        return timing

    def _timing(self) -> StepTiming:
        if self._modes:
            self._mark()
        began = time.perf_counter()
        turns, self._turns = self._turns, []
        sums: dict[Mode, float] = {"busy": 0.0, "waiting": 0.0, "excluded": 0.0}
        for start, end, mode in turns:
            sums[mode] += self._clock.seconds(start, end)
        self.cost_s, self._spent_s = self._spent_s + time.perf_counter() - began, 0.0
        return StepTiming(sums["busy"], sums["waiting"])

    def enter(self, mode: Mode) -> None:
        if self._modes:
            self._mark()
            self._modes.append("excluded" if self._modes[-1] == "excluded" else mode)

    def leave(self) -> None:
        if self._modes:
            self._mark()
            self._modes.pop()

    def capture(self) -> tuple[Mode, ...]:
        """The open modes of the pass that runs: one of two that run by turns (`strategies/turns.py`)."""
        return tuple(self._modes)

    def restore(self, state: Sequence[Mode]) -> None:
        """The pass with these open modes runs from now on."""
        if self._modes:
            self._mark()
            self._modes = list(state)

    def _mark(self) -> None:
        if not self._measures:
            return
        began = time.perf_counter()
        now = self._clock.now()
        self._turns.append((self._since, now, self._modes[-1]))
        self._since = now
        self._spent_s += time.perf_counter() - began


class _Within:
    def __init__(self, clock: WaitClock, mode: Mode) -> None:
        self._clock, self._mode = clock, mode

    def __enter__(self) -> None:
        self._clock.enter(self._mode)

    def __exit__(self, *_: object) -> None:
        self._clock.leave()
