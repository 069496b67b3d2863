"""A file for probes: it exists while the dispatcher serves its cluster, and its age shows whether the dispatcher hangs."""

import logging
from pathlib import Path

from ..failure_log import FailureLog

log = logging.getLogger(__name__)


class Heartbeat:
    """The file at `path`; without one nothing is written. A file that cannot be written is logged, and the dispatcher goes on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._failures = FailureLog(log)

    def note(self, *, serves: bool) -> None:
        """Touch the file, or remove it where the dispatcher does not serve its cluster."""
        if self._path is None:
            return
        try:
            if serves:
                self._path.touch()
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            self._failures.failed("heartbeat", f"SHARDYARD_HEARTBEAT_PATH, {self._path}: {error.strerror}")
        else:
            self._failures.works("heartbeat", "SHARDYARD_HEARTBEAT_PATH can be written again.")
