"""The telemetry of this process: the tracer and the wait clock to which its training thread reports.

There is one value per process, not one per thread or context: backward hooks run on autograd's threads, which inherit no context
variables. Until a caller installs another, the current one is off and records nothing.

    with current().tracer.span("forward", "model", microbatch): …      a span of the training thread
    since = now() … wait_on(work.wait, "all_reduce", group, since)      also one in the background, on its axis' lane
    with current().clock.waiting: …      a wait for other ranks, within which `clock.busy` is this rank's compute time again
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, TypeVar

import torch
import torch.distributed as dist

from .device_clock import HostClock
from .logged_values import LoggedValues
from .step_tracer import Group, StepTracer
from .wait_time import WaitClock

T = TypeVar("T")


@dataclass(frozen=True)
class Telemetry:
    """Both are off until they are started."""

    tracer: StepTracer = field(default_factory=StepTracer)
    clock: WaitClock = field(default_factory=WaitClock)
    logged: LoggedValues = field(default_factory=LoggedValues)


_off = Telemetry()
_current = _off


def current() -> Telemetry:
    """What is installed, else one that is off."""
    return _current


@contextmanager
def installed(telemetry: Telemetry) -> Iterator[None]:
    """Make `telemetry` the current one, on all threads."""
    global _current  # noqa: PLW0603  (one per process, as said above)
    before, _current = _current, telemetry
    try:
        yield
    finally:
        _current = before


def training() -> bool:
    """Whether this process runs a training loop."""
    return _current is not _off


def log(name: str, value: SupportsFloat | torch.Tensor) -> None:
    """Log a value of the step that is trained, from a model of the user's own. Ignored outside of a training step."""
    _current.logged.add(name, value)


def now() -> Any:
    """The moment at which something starts that goes on in the background; None while nothing is traced, and in what is compiled."""
    return None if torch.compiler.is_compiling() else _current.tracer.now()


def done_at(work: dist.Work) -> Callable[[], Any]:
    """A function that returns when `work` was done, for traces.

    It returns None while nothing is traced, before the work is done, and for a device's work, whose end the host does not see.
    """
    tracer = _current.tracer
    moments: list[float] = []
    if not tracer.on or not isinstance(tracer.clock, HostClock):
        return lambda: None
    clock = tracer.clock
    work.get_future().add_done_callback(lambda _: moments.append(clock.now()))
    return lambda: moments[0] if moments else None


def wait_on(
    wait: Callable[[], T],
    what: str,
    group: Group | None = None,
    since: Any = None,
    done: Callable[[], Any] | None = None,
) -> T:
    """The result of `wait`, which needs other ranks; until it is there, this rank waits.

    For traces: `what` is waited for, over which `group` (None: the world), `since` when it goes on in the background, if it does, and
    `done` returns afterwards when that ended, if it is known.
    """
    if torch.compiler.is_compiling():
        return wait()
    telemetry = _current
    with telemetry.clock.waiting:
        return telemetry.tracer.collective(wait, what, group, since, done) if telemetry.tracer.on else wait()


class WaitedWork(dist.Work):
    """A collective under way on which other code, such as torch, waits."""

    def __init__(self, work: dist.Work, what: str, group: Group, since: Any) -> None:
        """`what` was started over `group` at `since`, for traces."""
        super().__init__()
        self._work, self._about = work, (what, group, since)

    def wait(self, *timeout: Any) -> bool:
        return bool(wait_on(lambda: self._work.wait(*timeout), *self._about))
