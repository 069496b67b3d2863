"""The exceptions that ended processes of a rank's program, and which of them can be why the program has ended.

A program may survive the end of a process: `python -c "import flash_attn" || …` in a shell, or ranks that torchrun has started again. So an
exception counts only if its process ended shortly before the program, whose own main process always counts.
"""

import math
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..messages.rank_event import FailedEvent

#: Seconds from the end of a process to that of the program that ends because of it: torchrun gives the other ranks 30 s to end.
CAUSE_S: Final = 60.0
#: Maximum number of exceptions that are kept, each of up to `MOST_HELLO` bytes.
MOST_FAILURES: Final = 100


@dataclass
class ProcessFailure:
    """An exception that ends a process. `ended_at`: of the process, by `time.monotonic`; infinity while it lives."""

    event: FailedEvent
    ended_at: float = math.inf

    def wait(self, connection: socket.socket) -> None:
        """Wait for the end of the process, which keeps its connection until then: functions of atexit and other threads may take long."""
        with suppress(OSError):
            while connection.recv(1 << 10):
                pass
        self.ended_at = time.monotonic()


class ProcessFailures:
    """The exceptions of a program's processes, by their ids, in order. One thread adds."""

    def __init__(self) -> None:
        self._kept: dict[int, ProcessFailure] = {}

    def add(self, pid: int, event: FailedEvent) -> ProcessFailure | None:
        """Keep the first exception that may count, which is often the cause, and the newest ones, of which one is the main process's.

        Returns the failure of a process whose end is to be waited for; None if that of an earlier exception is.
        """
        known = self._kept.pop(pid, None)
        if known is not None and known.ended_at == math.inf:  # the program itself has called the hook before
            self._kept[pid] = known
            known.event = event
            return None
        if len(self._kept) >= MOST_FAILURES:
            first, second = islice(self._kept, 2)
            is_old = self._kept[first].ended_at < time.monotonic() - CAUSE_S
            del self._kept[first if is_old else second]
        self._kept[pid] = ProcessFailure(event)
        return self._kept[pid]

    def causes(self, at: float, main: int | None) -> dict[int, FailedEvent]:
        """Those that can be why the program ended at this time, in order. `main`: the program's main process."""
        kept = list(self._kept.items())  # at once: the other thread may be late
        return {pid: one.event for pid, one in kept if pid == main or one.ended_at >= at - CAUSE_S}
