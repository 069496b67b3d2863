"""How much memory a trainer has, told beside its steps: at most once a second, so that it costs a step nothing. Imports no torch."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Footprint:
    """Asks `read`, which gives bytes, and not more often than every `every_s`."""

    def __init__(self, read: Callable[[], int | None], every_s: float = EVERY_S) -> None:
        self._read, self._every_s = read, every_s
        self._next = 0.0

    def due(self) -> int | None:
        """Bytes; None when it was asked a moment ago, or when nobody knows."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + self._every_s
        return self._read()


def resident(pid: int | None) -> int | None:
    """Bytes of a process that are in memory now, pages that it shares with others counted; None when it has ended."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return None
