"""The instruments of a rank's training thread, and the requests to it: one value per trainer process, passed as an argument.

The control thread reads the heartbeat and sets requests; the training thread does the rest.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal

import torch

from ...strategies.telemetry import current
from ...strategies.telemetry.current import Telemetry
from ...strategies.telemetry.device_clock import clock_of
from ...strategies.telemetry.step_tracer import Category
from ..messages.stop_request import StopRequest, StopSource
from .heartbeat import Heartbeat
from .lost_ranks import LostRanks
from .pending_profile import PendingProfile
from .pending_trace import PendingTrace
from .slowdown import Slowdown

Phase = Literal[
    "batch",
    "gradients",
    "snapshot",
    "norm",
    "checkpoint",
    "clip",
    "update",
    "publish",
    "trace",
    "replica check",
    "validation",
    "write of a snapshot",
    "copy of a snapshot",
    "export",
]

#: The category of a phase in a trace; other phases count as `other`.
_CATEGORIES: Final[Mapping[Phase, Category]] = {
    "batch": "data",
    "gradients": "backward",
    "norm": "optimizer",
    "clip": "optimizer",
    "update": "optimizer",
    "publish": "optimizer",
}
#: Phases that are no part of a step: neither busy nor wait time.
_EXCLUDED: Final[frozenset[Phase]] = frozenset({"trace", "replica check", "validation"})


def _no_request() -> StopRequest:
    return StopRequest.NO


@dataclass(frozen=True)
class Instruments:
    """`stop_request()` returns the stop request that this rank has received; `StopRequest.NO` without one."""

    stop_request: StopSource = _no_request
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    slowdown: Slowdown = field(default_factory=Slowdown)
    pending_trace: PendingTrace = field(default_factory=PendingTrace)
    pending_profile: PendingProfile = field(default_factory=PendingProfile)
    lost_ranks: LostRanks = field(default_factory=LostRanks)
    telemetry: Telemetry = field(default_factory=Telemetry)

    @contextmanager
    def installed(self, device: torch.device) -> Iterator[None]:
        """Context in which strategies report to this telemetry, and the wait clock uses the clock of `device`."""
        with current.installed(self.telemetry), self.telemetry.clock.running(clock_of(device)):
            yield

    def phase(self, name: Phase, step: int | None = None) -> AbstractContextManager[None]:
        """A part of the training thread's work: a span of a trace, and excluded from the wait clock if it is no part of a step.

        With `step` also the heartbeat's phase; the one before continues after it, unless it fails.
        """
        if step is None and name not in _EXCLUDED:
            return self._span(name)
        return self._watched(name, step)

    @contextmanager
    def _watched(self, name: Phase, step: int | None) -> Iterator[None]:
        heartbeat, excluded = self.heartbeat, name in _EXCLUDED
        before = heartbeat.phase, heartbeat.step
        if step is not None:
            heartbeat.update(name, step)
        with self.telemetry.clock.excluded if excluded else nullcontext(), self._span(name):
            yield
        if step is not None:
            heartbeat.update(*before)

    def _span(self, name: Phase) -> AbstractContextManager[None]:
        return self.telemetry.tracer.span(_CATEGORIES.get(name, "other"), name)
