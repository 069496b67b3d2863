"""`python exec_guard.py COMMAND…`: runs a command, and leaves no process of it, wherever it has gone.

It ends with the command, whose status it returns, or when its standard input closes: the actor that started it has died, or wants the
command to end. Needs only the standard library.
"""

import contextlib
import ctypes
import os
import select
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
#: Exit status of a shell for a command that is not there.
NOT_FOUND = 127
#: Exit status of a shell for a command that SIGKILL has ended.
KILLED = 137
#: Seconds for the ends of killed processes.
KILL_S = 5.0
#: Milliseconds between two waits for adopted processes that have ended.
REAP_MS = 500


def main(command: list[str]) -> int:
    """Run the command; returns its exit status, or 128 and the signal that ended it.

    Ray kills the children of an actor that exits, before they can clean up. So the guard is a grandchild.
    """
    guard = os.fork()
    if guard == 0:
        os.setsid()
        os._exit(guarded(command))
    _, status = os.waitpid(guard, 0)
    return os.waitstatus_to_exitcode(status)


def guarded(command: list[str]) -> int:
    """Run the command, and kill what it leaves."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        os.write(2, f"shardyard: {command[0]!r} cannot be started: {error.strerror}\n".encode())
        return NOT_FOUND
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    while not (ready := [descriptor for descriptor, _ in poll.poll(REAP_MS)]):
        reap(process.pid)
    if ended not in ready:
        with contextlib.suppress(PermissionError):  # where the kernel lists no children, too
            process.kill()
        kill_children()
        return KILLED
    code = process.wait()
    kill_children()
    return code if code >= 0 else 128 - code


def reap(command: int) -> None:
    """Wait for adopted processes that have ended, which would take places among the node's processes as long as the command runs."""
    for pid in children():
        if pid != command:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_children() -> None:
    """Kill the command, or what it has left, until nothing is: an orphan may have children of its own.

    One of another user, which cannot be killed, stays. So does one that has not ended within `KILL_S`, as `nvidia-smi` on a GPU that does
    not answer. `parent_death.kill_orphans` is the same, for who may import it.
    """
    stays = set()
    until = time.monotonic() + KILL_S
    while left := [pid for pid in children() if pid not in stays]:
        for pid in left:
            try:
                os.kill(pid, 9)
            except PermissionError:
                stays.add(pid)
        for pid in left:
            if pid not in stays and not has_ended(pid, until):
                stays.add(pid)


def has_ended(pid: int, until: float) -> bool:
    """Wait for the end of a child; returns whether it has ended. `until`: as `time.monotonic`."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    ready = poll.poll(1000 * max(0.0, until - time.monotonic()))
    os.close(ended)
    if ready:
        os.waitpid(pid, 0)
    return bool(ready)


def children() -> list[int]:
    """Ids of this process's children, also of those that it has adopted. Empty where the kernel does not list them."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
