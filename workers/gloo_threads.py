"""The threads on which torch's gloo groups run collectives, at the end of their process.

Such a thread lets go of a collective's tensors after the caller has gone on, and takes the GIL for it. If it waits for the GIL when the
interpreter is finalised, Python ends it within a C++ destructor, and that aborts the process: "terminate called without an active
exception" (<https://github.com/pytorch/pytorch/pull/179291>; torch 2.13 joins these threads only with the last reference to their group,
and DistributedDataParallel keeps one).

Imports only the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import time
from pathlib import Path

#: What torch calls them, cut to what the kernel keeps of a thread's name.
NAME = "pt_gloo_runloop"
#: The most seconds to wait for a thread that is late.
LATE_S = 5.0
#: Seconds between two looks: any thread that waits for the GIL gets it within one.
LOOK_S = 0.005
#: Looks in a row that find none at work.
LOOKS = 2


def let_late_ones_end() -> None:
    """Leave them the GIL until none runs. One that waits for a peer's message is not waited for. Linux only; elsewhere it does nothing."""
    until = time.monotonic() + LATE_S
    quiet = 0
    while quiet < LOOKS and time.monotonic() < until:
        states = _states()
        if not states:
            return
        time.sleep(LOOK_S)
        quiet = 0 if "R" in states else quiet + 1


def _states() -> list[str]:
    """The kernel's state of each such thread of this process: `R` is running, or would if a processor were free."""
    found = []
    for folder in Path("/proc/self/task").glob("*"):
        try:
            name, state = (folder / "stat").read_text().partition("(")[2].rpartition(")")[::2]
        except OSError:  # it has ended, or there is no such folder
            continue
        if name == NAME:
            found.append(state.split()[0])
    return found
