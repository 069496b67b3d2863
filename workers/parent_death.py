"""Processes that end with the one that started them, however that one dies (Linux); and what they leave behind."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Container
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent(parent: int) -> None:
    """prctl(PR_SET_PDEATHSIG): the kernel kills this process when the one that started it dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """prctl(PR_SET_CHILD_SUBREAPER): descendants whose parent dies become children of this process, whatever session they are in."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """Ids of this process's children, also of those that it has adopted. Empty where the kernel does not list them."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def kill_orphans(spared: Container[int]) -> None:
    """Kill the children of this process that are not `spared`, until none is left: an orphan may have children of its own.

    One of another user, which cannot be killed, stays.
    """
    stays: set[int] = set()
    while orphans := [pid for pid in children() if pid not in spared and pid not in stays]:
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:
                stays.add(pid)
            except (ProcessLookupError, ChildProcessError):
                pass  # it has ended, and another thread has waited for it
