"""The stacks of this process's threads as plain data.

Imports only the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import dis
import itertools
import sys
import threading
import traceback
from collections.abc import Collection
from types import FrameType
from typing import Any

MOST_FRAMES = 60
MOST_THREADS = 16
#: Instructions that load a function by its name.
LOADS = frozenset({"LOAD_ATTR", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_NAME"})


def stacks(outside: Collection[str] = ()) -> list[dict[str, Any]]:
    """Per thread, the main one first: its name, its frames, the innermost last, and the function that the innermost calls.

    The thread that asks is left out. Frames are those within the innermost frame of a file in `outside`.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    main = threading.main_thread().ident
    threads = sorted((ident for ident in frames if ident != threading.get_ident()), key=lambda ident: ident != main)
    return [
        {"thread": names.get(i, "native"), "frames": _lines(frames[i], outside), "call": called(frames[i])}
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


def _lines(frame: FrameType, outside: Collection[str]) -> list[str]:
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MOST_FRAMES, lookup_lines=False)
    inside = list(itertools.takewhile(lambda entry: entry.filename not in outside, summary))
    return [f"{entry.filename}:{entry.lineno} in {entry.name}" for entry in reversed(inside)]
