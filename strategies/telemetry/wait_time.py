"""How long a rank works in a step and how long it waits for others: all steps take equally long, because everybody waits for the slowest.

    own time of a rank = time from one meeting of all ranks to the next − time in which it needed others' results and did not have them

Whatever needs such a result says so: `waited(work.wait)`, or `with WAITING` around a pipeline's schedule, within which each action is
`WORKING` again. What is no part of a step, as validation, stands `ASIDE`. CPUs are read by `perf_counter`; CUDA by events on the stream
that computes, which passes the second one when the collective is done. What is compiled is not looked into.
Not seen: what torch's `fully_shard` waits for by itself, which is all of ZeRO-3's on CUDA and the sums between HSDP's groups.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import torch
import torch.distributed as dist

from .device_clock import Clock, HostClock
from .step_tracer import SPANS, Group

T = TypeVar("T")
Mode = Literal["own", "waiting", "aside"]


@dataclass(frozen=True)
class Lap:
    """Seconds of a rank from one meeting with all others to the next, without what stood aside."""

    own_s: float
    waited_s: float


class OwnTime:
    """The training thread's time, divided, while it is `counting`: whoever takes no laps need not."""

    def __init__(self) -> None:
        self.clock: Clock = HostClock()
        self._since: Any = None
        self._modes: list[Mode] = []  # the innermost last
        self._turns: list[tuple[Any, Any, Mode]] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Everything within is the rank's own time, if nobody says otherwise."""
        self._since, self._modes, self._turns = self.clock.now(), ["own"], []
        try:
            yield
        finally:
            self._modes = []

    def lap(self) -> Lap:
        """The time since the last lap. Call it when the device has passed all of it: after the step's meeting of all ranks."""
        if self._modes:
            self._mark()
        turns, self._turns = self._turns, []
        sums: dict[Mode, float] = {"own": 0.0, "waiting": 0.0, "aside": 0.0}
        for start, end, mode in turns:
            sums[mode] += self.clock.seconds(start, end)
        return Lap(sums["own"], sums["waiting"])

    def enter(self, mode: Mode) -> None:
        if self._modes:
            self._mark()
            self._modes.append("aside" if self._modes[-1] == "aside" else mode)

    def leave(self) -> None:
        if self._modes:
            self._mark()
            self._modes.pop()

    def _mark(self) -> None:
        now = self.clock.now()
        self._turns.append((self._since, now, self._modes[-1]))
        self._since = now


class _Turn:
    def __init__(self, own_time: OwnTime, mode: Mode) -> None:
        self._own_time, self._mode = own_time, mode

    def __enter__(self) -> None:
        self._own_time.enter(self._mode)

    def __exit__(self, *_: object) -> None:
        self._own_time.leave()


#: A trainer is a process of its own, and trains in one thread.
OWN_TIME: Final = OwnTime()
WAITING: Final = _Turn(OWN_TIME, "waiting")
WORKING: Final = _Turn(OWN_TIME, "own")
ASIDE: Final = _Turn(OWN_TIME, "aside")


def waited(wait: Callable[[], T], what: str, group: Group | None = None, since: Any = None) -> T:
    """The result of `wait`, which needs other ranks; the time until it is there is none of this rank's own.

    For traces (`step_tracer.py`): `what` is waited for, over which `group`, and if it goes on in the background, `since` which moment.
    """
    if torch.compiler.is_compiling():
        return wait()
    with WAITING:
        return SPANS.waiting(wait, what, group, since) if SPANS.on else wait()


class WaitedWork(dist.Work):
    """A collective under way that somebody else, such as torch, waits for."""

    def __init__(self, work: dist.Work, what: str, group: Group, since: Any) -> None:
        """`what` was started over `group` at `since`, for traces."""
        super().__init__()
        self._work, self._about = work, (what, group, since)

    def wait(self, *timeout: Any) -> bool:
        return bool(waited(lambda: self._work.wait(*timeout), *self._about))
