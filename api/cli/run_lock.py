"""The lock that each `shardyard run` of a data folder holds: none of them stops a control plane that another one uses.

The kernel releases it when its holder dies.
"""

import fcntl
import os
from pathlib import Path

from ...service.data_folder import make


class RunLock:
    """The file `run.lock`. Held by any number of processes that share it, or by one alone."""

    def __init__(self, data_dir: Path) -> None:
        make(data_dir)
        self._file = os.open(data_dir / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def share(self, *, wait: bool) -> bool:
        """Hold it with others. Returns whether this process holds it now. `wait`: until no process holds it alone."""
        return self._take(fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))

    def alone(self) -> bool:
        """Hold it alone, if no other process holds it. Returns whether that is so; if not, this process does not hold it any more."""
        return self._take(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        os.close(self._file)

    def _take(self, how: int) -> bool:
        try:
            fcntl.flock(self._file, how)
        except BlockingIOError:
            return False
        return True
