"""A file for probes: it exists once the dispatcher has reached its cluster, and its age shows whether the dispatcher hangs.

Also while another dispatcher's cluster has the name: a rollout to another cluster ends that one only when this one is ready.
"""

import logging
from pathlib import Path

from ..failure_log import FailureLog

log = logging.getLogger(__name__)


class Heartbeat:
    """The file at `path`; without one nothing is written. A file that cannot be written is logged, and the dispatcher goes on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._failures = FailureLog(log)

    def note(self, *, looked: bool) -> None:
        """Touch the file, or remove it before the cluster was reached for the first time and after the end."""
        if self._path is None:
            return
        try:
            if looked:
                self._path.touch()
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            self._failures.failed("heartbeat", f"SHARDYARD_HEARTBEAT_PATH, {self._path}: {error.strerror}")
        else:
            self._failures.works("heartbeat", "SHARDYARD_HEARTBEAT_PATH can be written again.")
