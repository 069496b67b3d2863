"""A trainer's heartbeat: its phase, its step and their age, and for a trainer that hangs its stacks and collectives.

The training thread records beats; the control thread reports them with `status`. It cannot while the process is stopped or a thread holds
the interpreter's lock. Then a signal still makes the interpreter write all stacks to the log.
"""

import dis
import faulthandler
import itertools
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ..messages.rank_status import STACKS_SIGNAL

MOST_FRAMES: Final = 60
TRAINER: Final = str(Path(__file__).with_name("main.py"))
MOST_THREADS: Final = 16
#: Instructions that load a function by its name.
LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_NAME"})


@dataclass
class Heartbeat:
    """The training thread's newest beat, `at` a time of `time.monotonic`."""

    phase: str = "start"
    step: int = 0
    at: float = field(default_factory=time.monotonic)

    def beat(self, phase: str, step: int) -> None:
        """The training thread begins `phase` of `step`, or makes progress in it."""
        self.phase, self.step, self.at = phase, step, time.monotonic()

    def status(self) -> dict[str, Any]:
        """Phase, step, seconds since the last beat, all threads' stacks but the caller's, and the collectives of every group."""
        facts: dict[str, Any] = {"phase": self.phase, "step": self.step, "idle_s": time.monotonic() - self.at}
        return facts | {"stacks": _stacks(), "collectives": _collectives()}


def listen_for_signals() -> None:
    """Write stacks to the log on a crash, and on `STACKS_SIGNAL`. Call it in the trainer's main thread."""
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL, all_threads=True)


def _collectives() -> list[dict[str, Any]]:
    if "torch" not in sys.modules:
        return []
    from .flight_recorder import collectives

    return [record.to_json() for record in collectives()]


def _stacks() -> list[dict[str, Any]]:
    """Per thread, the main one first: its name, its frames, the innermost last, and the function that the innermost calls."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    main = threading.main_thread().ident
    threads = sorted((ident for ident in frames if ident != threading.get_ident()), key=lambda ident: ident != main)
    return [
        {"thread": names.get(i, "native"), "frames": _lines(frames[i]), "call": called(frames[i])}
        for i in threads[:MOST_THREADS]
    ]


def called(frame: FrameType) -> str:
    """The name of the function that a frame calls, from its bytecode; empty if it calls none.

    A function of torch in C, such as `tolist`, has no frame of its own. The source is not read: its file system may hang, too.
    """
    name = ""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.opname in LOADS:
            name = str(instruction.argval)
        if instruction.offset >= frame.f_lasti:
            return name if instruction.opname.startswith("CALL") else ""
    return ""


def _lines(frame: FrameType) -> list[str]:
    """The frames within the trainer's call of the training; what is outside is the same in every trainer."""
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MOST_FRAMES, lookup_lines=False)
    inside = list(itertools.takewhile(lambda entry: entry.filename != TRAINER, summary))
    return [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in reversed(inside)]
