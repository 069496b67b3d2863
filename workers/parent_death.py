"""Processes that end with the one that started them, however that one dies (Linux); and what they leave behind."""

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Container
from functools import partial
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


def has_children_in(group: int) -> bool:
    """Whether children of this process are in a process group, besides its leader. Those that have ended are reaped."""
    found = False
    for pid in children():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # another thread has waited for it
            if pid != group and os.getpgid(pid) == group and os.waitpid(pid, os.WNOHANG) == (0, 0):
                found = True
    return found


def kill_orphans(spared: Container[int], patience_s: float) -> None:
    """Kill the children of this process that are not `spared`, until none is left: an orphan may have children of its own.

    One of another user, which cannot be killed, stays. So do those that have not ended after `patience_s` seconds in all: they end when
    the device or the file system answers that they wait for.
    """
    stays: set[int] = set()
    until = time.monotonic() + patience_s
    while orphans := [pid for pid in children() if pid not in spared and pid not in stays]:
        for act in (_kill, partial(_wait, until)):  # all are killed before one of them is waited for
            for pid in orphans:
                # It may have ended, and another thread has waited for it.
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    if pid not in stays and not act(pid):
                        stays.add(pid)


def _kill(pid: int) -> bool:
    """Returns whether this process may."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _wait(until: float, pid: int) -> bool:
    """Wait for the end of a child; returns whether it has ended. `until`: as `time.monotonic`."""
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        if not poll.poll(1000 * max(0.0, until - time.monotonic())):
            return False
    finally:
        os.close(ended)
    os.waitpid(pid, 0)
    return True
