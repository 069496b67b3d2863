"""Logs repeated failures: one line per cause and minute, with a count, and one line when it works again.

If the database is down, it fails hundreds of times a minute. The first failure of a cause is logged at once; the others are counted
until the minute is over. A cause's recovery is logged only after a line that reported its failure, so an intermittent cause writes
two lines a minute.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

#: Seconds between two lines that report the same failure.
EVERY_S: Final = 60.0


@dataclass
class _Cause:
    since: float = 0.0  # start of the present failure
    failing: bool = False
    count: int = 0  # failures since then
    logged_at: float = float("-inf")
    unlogged: int = 0  # failures since that line
    reported: bool = False  # whether the last line about it reported a failure


class FailureLog:
    """Keeps one entry per cause, so causes must be few: codes and types, never ids. `clock` returns seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._causes: dict[str, _Cause] = {}

    @property
    def failing(self) -> Collection[str]:
        """Causes that failed and have not worked since."""
        return [name for name, cause in self._causes.items() if cause.failing]

    def failed(self, name: str, text: str, error: BaseException | None = None) -> None:
        """Count a failure of cause `name`. `text` is its line, `error` adds a traceback to it."""
        cause, now = self._causes.setdefault(name, _Cause()), self._clock()
        if not cause.failing:
            cause.failing, cause.since, cause.count = True, now, 0
        cause.count += 1
        if now - cause.logged_at < EVERY_S:
            cause.unlogged += 1
            return
        more = f" ({cause.unlogged} more since the last such line)" if cause.unlogged else ""
        self._log.error("%s%s", text, more, exc_info=error)
        cause.logged_at, cause.unlogged, cause.reported = now, 0, True

    def works(self, name: str, text: str) -> None:
        """Note that cause `name` has gone. `text` is the line that reports it. Cheap if the cause had not failed."""
        cause = self._causes.get(name)
        if cause is None or not cause.failing:
            return
        cause.failing = False
        if cause.reported:
            cause.reported = False
            self._log.info("%s It had failed for %.0f s (%d×).", text, self._clock() - cause.since, cause.count)
