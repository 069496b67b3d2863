"""One rank's profile by torch itself: whole steps are recorded on the training thread, and written on another.

It is of one rank, and needs no agreement. A step without one costs a look at an attribute.
"""

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Final

import torch

from ...messages.stop_request import StopRequest
from ...torch_recordings import NotRecorded, Recording
from ..event_outbox import EmitEvent
from ..pending_profile import PROFILED, PendingProfile, RecordingOrder
from ..recorded_profile import begun
from ..step_record import StepRecord
from .base import Callback

#: The most steps in one profile: a step may have a hundred thousand operators.
MOST_STEPS: Final = 10


@dataclass
class _Running:
    order: RecordingOrder
    recording: Recording
    until: float  # monotonic seconds
    steps: int = 0


class Profiling(Callback):
    """Records when it is ordered to. The answer has `failed`, why there is no file, or None; and the number of steps."""

    def __init__(self, pending: PendingProfile, device: torch.device, emit: EmitEvent) -> None:
        self._pending, self._device, self._emit = pending, device, emit
        self._running: _Running | None = None

    def before_step(self, step: int) -> None:  # noqa: ARG002
        if self._running is not None or (order := self._pending.take()) is None:
            return
        try:
            recording = begun(order.kind, self._device)
        except NotRecorded as error:
            self._answer(order, str(error), 0)
        else:
            self._running = _Running(order, recording, time.monotonic() + order.seconds)

    def after_step(self, record: StepRecord) -> None:  # noqa: ARG002
        running = self._running
        if running is None:
            return
        running.steps += 1
        if running.steps == MOST_STEPS or time.monotonic() >= running.until:
            self._conclude(running)

    def finish(self, step: int, stop: StopRequest) -> None:  # noqa: ARG002
        if self._running is not None:
            self._conclude(self._running)

    def close(self) -> None:
        """The training has failed within a step: what was recorded is not whole."""
        if (running := self._running) is not None:
            self._running = None
            with contextlib.suppress(RuntimeError):
                running.recording.end()
            self._answer(running.order, "the training failed meanwhile", running.steps)

    def _conclude(self, running: _Running) -> None:
        self._running = None
        try:
            running.recording.end()
        except RuntimeError as error:
            self._answer(running.order, f"torch could not end it: {error}", running.steps)
        else:
            threading.Thread(target=self._write, args=(running,), name="profile", daemon=True).start()

    def _write(self, running: _Running) -> None:
        failed = None
        try:
            running.recording.write(running.order.path)
        except (OSError, RuntimeError) as error:
            failed = f"it could not be written: {error}"
        self._answer(running.order, failed, running.steps)

    def _answer(self, order: RecordingOrder, failed: str | None, steps: int) -> None:
        self._emit(PROFILED, {"id": order.id, "failed": failed, "steps": steps})
