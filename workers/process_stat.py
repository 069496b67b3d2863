"""What `/proc/PID/stat` says of a process (proc(5)), read in one place. Needs only the standard library."""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

#: Clock ticks in a second, and bytes of a page.
TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """A process. Times are in clock ticks, of which a second has `TICKS`."""

    name: str  # which the process chooses itself: it may contain spaces, parentheses, and bytes that are no UTF-8
    state: str  # one letter, such as `R` (running), `S` (sleeping), `T` (stopped) or `Z` (ended, not reaped)
    parent: int  # its id
    session: int  # the id of the process that leads it
    cpu: int  # user and system time of the process itself
    children_cpu: int  # that of its children that have ended and were waited for, and of theirs
    started: int  # since the machine's boot
    resident: int  # bytes, with pages that it shares


def read(pid: int) -> ProcessStat:
    """Raises OSError; FileNotFoundError or ProcessLookupError if there is no such process."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()  # from the third one of proc(5) on
    return ProcessStat(
        name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu=int(fields[11]) + int(fields[12]),
        children_cpu=int(fields[13]) + int(fields[14]),
        started=int(fields[19]),
        resident=int(fields[21]) * _PAGE,
    )


def read_all() -> dict[int, ProcessStat]:
    """All processes of this machine, or container, by their ids. Those that end meanwhile are left out."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # names, many times
        if name.isdecimal():
            with contextlib.suppress(OSError):
                found[int(name)] = read(int(name))
    return found


def state_of(pid: int) -> str | None:
    """The letter of a process's state; None if there is no such process."""
    with contextlib.suppress(OSError):
        return read(pid).state
    return None


def started_at(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None if there is no such process, or it has ended and was not reaped.

    Raises OSError if that cannot be known.
    """
    try:
        found = read(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if found.state in "ZX" else found.started


def boot_id() -> str:
    """This boot of the machine. Within it a process id and `started` identify a process. Raises OSError on a system without /proc."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
