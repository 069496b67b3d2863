"""Log lines."""

from pydantic import Field

from .base import Value


class LogLine(Value):
    """One line of one rank. `n` is its place in the job's log, `line` its place in the rank's stream."""

    n: int
    rank: int
    attempt: int = 1
    line: int = 0
    stream: str = "stdout"
    text: str
    ts: float | None = Field(None, description="Unix seconds.")


class Logs(Value):
    """Log lines in order; `next` is the `after` of the next request, null when there is no more for now."""

    lines: list[LogLine]
    next: int | None = None


class LogHits(Value):
    """Lines that match, in order, of the stretch that was looked through. A log is never looked through as a whole."""

    lines: list[LogLine]
    looked: int = Field(description="How far: pass it as `after` to look on.")
    last: int = Field(description="The log's last place just now.")
    done: bool = Field(description="The log's end was reached.")
