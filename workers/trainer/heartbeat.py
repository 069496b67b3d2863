"""A trainer's heartbeat: its phase, its step and their age, and for a trainer that hangs its stacks and collectives.

The training thread records beats; the control thread reports them with `status`. It cannot while the process is stopped or a thread holds
the interpreter's lock. Then py-spy reads its stacks, or a signal makes the interpreter write that of the main thread to the log.
"""

import faulthandler
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..messages.rank_status import STACKS_SIGNAL
from ..thread_stacks import stacks

#: Frames outside its call of the training are the same in every trainer.
TRAINER: Final = str(Path(__file__).with_name("main.py"))


@dataclass
class Heartbeat:
    """The training thread's newest beat, `at` a time of `time.monotonic`.

    `report` replaces the status where another process trains.
    """

    phase: str = "start"
    step: int = 0
    at: float = field(default_factory=time.monotonic)
    report: Callable[[], dict[str, Any]] | None = None

    def update(self, phase: str, step: int) -> None:
        """The training thread begins `phase` of `step`, or makes progress in it."""
        self.phase, self.step, self.at = phase, step, time.monotonic()

    def starting(self) -> None:
        """The training thread makes progress before its first step: it reads data, or a checkpoint."""
        self.update("start", 0)

    def status(self) -> dict[str, Any]:
        """Phase, step, seconds since the last beat, all threads' stacks but the caller's, and the collectives of every group."""
        if self.report is not None:
            return self.report()
        facts: dict[str, Any] = {"phase": self.phase, "step": self.step, "idle_s": time.monotonic() - self.at}
        return facts | {"stacks": stacks({TRAINER}), "collectives": _collectives()}


def listen_for_signals() -> None:
    """Write stacks to the log on a crash, and that of the main thread on `STACKS_SIGNAL`. Call it in the trainer's main thread.

    faulthandler reads other threads while they run: one that ends meanwhile would crash the trainer.
    """
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL, all_threads=False)


def _collectives() -> list[dict[str, Any]]:
    if "torch" not in sys.modules:
        return []
    from .flight_recorder import collectives

    return [record.to_json() for record in collectives()]
