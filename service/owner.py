"""Who holds a lease: a dispatcher's process, told apart from any other that ever had its number."""

import os
import socket
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True)
class Owner:
    """A process: its host, its id there, and when it started (whole unix seconds). Text form `dispatcher:host:pid:start`."""

    host: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """A living process of this machine. Raises psutil.NoSuchProcess."""
        return cls(socket.gethostname(), pid, int(psutil.Process(pid).create_time()))

    @classmethod
    def of_this_process(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def parse(cls, text: str) -> "Owner | None":
        kind, _, rest = text.partition(":")
        host, _, numbers = rest.partition(":")
        pid, _, started = numbers.partition(":")
        if kind != "dispatcher" or not (pid.isdecimal() and started.isdecimal()):
            return None
        return cls(host, int(pid), int(started))

    def __str__(self) -> str:
        return f"dispatcher:{self.host}:{self.pid}:{self.started}"

    @property
    def certainly_dead(self) -> bool:
        """Only this machine's own processes can be known to be dead."""
        if self.host != socket.gethostname():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) >= 2
        except psutil.NoSuchProcess:
            return True
