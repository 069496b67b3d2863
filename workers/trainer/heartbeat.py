"""What a trainer says of itself while it trains, and also when it is stuck: where it is, since when, and why it waits.

The training thread beats; the control thread answers. It cannot while the process is stopped or somebody holds the interpreter's lock;
then a signal still makes the interpreter write all stacks to the log.
"""

import faulthandler
import itertools
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ..messages.rank_status import STACKS_SIGNAL

MOST_FRAMES: Final = 60
TRAINER: Final = str(Path(__file__).with_name("main.py"))
MOST_THREADS: Final = 16


@dataclass
class Pulse:
    """The training thread's newest beat."""

    phase: str = "start"
    step: int = 0
    at: float = 0.0

    def beat(self, phase: str, step: int) -> None:
        """The training thread begins `phase` of `step`, or gets on in it."""
        self.phase, self.step, self.at = phase, step, time.monotonic()


#: A trainer is a process of its own, and this is its pulse.
PULSE: Final = Pulse(at=time.monotonic())


def listen_for_signals() -> None:
    """Write stacks to the log on a crash, and when asked by `STACKS_SIGNAL`. Call it in the trainer's main thread."""
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    PULSE.beat("start", 0)


def examined() -> dict[str, Any]:
    """Phase, step, seconds since the last beat, all threads' stacks but the caller's, and the collectives of every group."""
    facts: dict[str, Any] = {"phase": PULSE.phase, "step": PULSE.step, "idle_s": time.monotonic() - PULSE.at}
    return facts | {"stacks": _stacks(), "collectives": _collectives()}


def _collectives() -> list[dict[str, Any]]:
    if "torch" not in sys.modules:
        return []
    from .flight_recorder import collectives

    return collectives()


def _stacks() -> list[dict[str, Any]]:
    """Per thread, the main one first: its name and frames, the innermost last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    main = threading.main_thread().ident
    threads = sorted((ident for ident in frames if ident != threading.get_ident()), key=lambda ident: ident != main)
    return [{"thread": names.get(i, "native"), "frames": _lines(frames[i])} for i in threads[:MOST_THREADS]]


def _lines(frame: FrameType) -> list[str]:
    """The frames within the trainer's call of the training; what is outside is the same for everybody."""
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MOST_FRAMES, lookup_lines=False)
    inside = list(itertools.takewhile(lambda entry: entry.filename != TRAINER, summary))
    return [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in reversed(inside)]
