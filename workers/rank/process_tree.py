"""What a process and all processes below it use. Reads `/proc` only, and no more than 1,024 processes of one tree.

A process that ends leaves its CPU time to its parent, which has waited for it. So the sum over a tree grows. Shared pages count in
each process that has them.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..messages.system_metrics import Reading

MOST: Final = 1024
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Places in `/proc/PID/stat` after the name: user and system time of the process, and of its children that have ended; resident pages.
_TIMES: Final = slice(11, 15)
_RESIDENT: Final = 21


def read(pid: int) -> Reading:
    """The counter `cpu` (s · 100) and the value `memory` (bytes); empty if the process has ended."""
    ticks = pages = 0
    found = False
    for stat in _stats(pid):
        fields = stat.rpartition(")")[2].split()
        ticks += sum(map(int, fields[_TIMES]))
        pages += int(fields[_RESIDENT])
        found = True
    if not found:
        return Reading()
    return Reading({"memory": float(pages * _PAGE)}, {"cpu": 100.0 * ticks / _TICK})


def pids(pid: int) -> list[int]:
    """The process and all below it, parents first. Those that have ended are left out."""
    return [int(stat.partition(" ")[0]) for stat in _stats(pid)]


def _stats(pid: int) -> Iterator[str]:
    """`/proc/PID/stat` of the process and all below it, parents first. Those that end meanwhile are left out."""
    pending, seen = [pid], 0
    while pending and seen < MOST:
        one = pending.pop(0)
        seen += 1
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{one}/stat").read_text()
            pending += _children(one)
            yield stat


def _children(pid: int) -> list[int]:
    """The processes that threads of this one have started."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found
