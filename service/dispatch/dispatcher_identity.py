"""Which dispatcher owns a lease: its id, and the process by which another dispatcher knows that it is dead.

Its process is provably dead only where its PID has the same meaning: after the same boot, in the same PID namespace. A host's name does
not prove that; containers may share it.
"""

import os
import socket
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self
from uuid import uuid4

from ...workers.process_stat import started_at

_PROC = Path("/proc")


@dataclass(frozen=True)
class Owner:
    """A dispatcher: its host's name, its id, and its process (boot and namespaces, PID, start time).

    `place` is empty where it cannot be known; `started` is in clock ticks since the boot. Text form
    `dispatcher:host:instance:place:pid:started`.
    """

    host: str
    instance: str
    place: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """A new owner in a live process of this boot and namespace. Raises ProcessLookupError."""
        place = _place()
        started = started_at(pid) if place else 0
        if started is None:
            raise ProcessLookupError(pid)
        return cls(socket.gethostname(), uuid4().hex[:12], place, pid, started)

    @classmethod
    def of_this_process(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        """The owner of a text; None if the text has another form, such as an earlier version's."""
        kind, *rest = text.split(":")
        if kind != "dispatcher" or len(rest) != 5 or not all(number.isdecimal() for number in rest[3:]):
            return None
        host, instance, place, pid, started = rest
        return cls(host, instance, place, int(pid), int(started))

    def __str__(self) -> str:
        return f"dispatcher:{self.host}:{self.instance}:{self.place}:{self.pid}:{self.started}"

    @property
    def is_dead(self) -> bool:
        """Whether the process is dead. False for processes of another boot or namespace."""
        return bool(self.place) and self.place == _place() and started_at(self.pid) != self.started


def _place() -> str:
    """Boot and namespaces, in which PID and start time identify a process; empty without a /proc of our own."""
    try:
        if (_PROC / "self").readlink() != Path(str(os.getpid())):  # the /proc of another PID namespace
            return ""
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [str((_PROC / "self/ns" / kind).readlink()) for kind in ("pid", "time")]
    except OSError:
        return ""
    return sha256(" ".join([boot, *spaces]).encode()).hexdigest()[:12]
