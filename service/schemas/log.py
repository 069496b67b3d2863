"""Log lines."""

from typing import Annotated

from pydantic import Field

from .base import Value

Removed = Annotated[
    int, Field(description="Number of the job's first log lines, of all ranks, that retention has removed.")
]


class LogLine(Value):
    """One log line of a rank. `position` is its place in the job's log, `line` its number in the rank's stream."""

    position: int
    rank: int
    attempt: int = 1
    line: int = 0
    stream: str = "stdout"
    text: str
    ts: float | None = Field(None, description="Time in Unix seconds.")


class Logs(Value):
    """Log lines in order. `next` is the `after` of the next request, null if there are no further lines yet."""

    lines: list[LogLine]
    next: int | None = None
    earlier: bool = Field(False, description="Of `tail` and `around`: whether the log has lines before these.")
    removed: Removed = 0


class LogSearchResult(Value):
    """Matching lines, in order, of the part of the log that this request scanned."""

    lines: list[LogLine]
    scanned_to: int = Field(description="Position up to which the log was scanned; pass it as `after` to continue.")
    end: int = Field(description="Last position of the log at the time of the request.")
    done: bool = Field(description="Whether the scan reached the end of the log.")
    removed: Removed = 0
