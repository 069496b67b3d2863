"""Measures a trainer's memory beside its steps, at most once a second, so that it takes no time from a step. Imports no torch."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class MemorySampler:
    """Calls `read`, which returns bytes, at most once every `every_s` seconds."""

    def __init__(self, read: Callable[[], int | None], every_s: float = EVERY_S) -> None:
        self._read, self._every_s = read, every_s
        self._next = 0.0

    def due(self) -> int | None:
        """Bytes. None if it was read less than `every_s` seconds ago, or if it cannot be read."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + self._every_s
        return self._read()


def resident(pid: int | None) -> int | None:
    """Resident bytes of a process, including pages that it shares with others; None when it has ended."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return None
