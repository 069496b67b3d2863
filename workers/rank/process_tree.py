"""What a process and all processes below it use. Reads `/proc` only, and no more than 1,024 processes of one tree.

A process that ends leaves its CPU time to its parent, which has waited for it. So the sum over a tree grows. Shared pages count in
each process that has them.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .. import process_stat
from ..messages.system_metrics import Reading
from ..process_stat import TICKS, ProcessStat

MOST: Final = 1024
#: How often a session is looked through: a process may start another one just before it is killed.
_ROUNDS: Final = 2


def read(pid: int) -> Reading:
    """The counter `cpu` (s · 100) and the value `memory` (bytes); empty if the process has ended."""
    found = [stat for _, stat in _stats(pid)]
    if not found:
        return Reading()
    ticks = sum(stat.cpu + stat.children_cpu for stat in found)
    return Reading({"memory": float(sum(stat.resident for stat in found))}, {"cpu": 100.0 * ticks / TICKS})


def pids(pid: int) -> list[int]:
    """The process and all below it, parents first. Those that have ended are left out."""
    return [one for one, _ in _stats(pid)]


def kill_session(leader: int) -> None:
    """Kill a process that leads a session, and all of it. As long as one of them lives, no other process gets the session's id."""
    for _ in range(_ROUNDS):
        for pid, stat in process_stat.read_all().items():
            if stat.session == leader:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _stats(pid: int) -> Iterator[tuple[int, ProcessStat]]:
    """The process and all below it, by their ids, parents first. Those that end meanwhile are left out."""
    pending, seen = [pid], 0
    while pending and seen < MOST:
        one = pending.pop(0)
        seen += 1
        with contextlib.suppress(OSError):
            stat = process_stat.read(one)
            pending += children(one)
            yield one, stat


def children(pid: int) -> list[int]:
    """The processes that threads of this one have started. Raises OSError if it has ended."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found
