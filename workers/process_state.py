"""The state of a process, as /proc has it."""

import contextlib
from pathlib import Path


def state_of(pid: int) -> str | None:
    """One letter, such as `R` (running), `S` (sleeping), `T` (stopped) or `Z` (ended, not reaped); None if there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None
