"""What happened to a job after a cursor, as an event stream sends it. Plain dataclasses: thousands are made per second."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..states import State
from .cursor import Cursor


class Scope(NamedTuple):
    """What a reader gets besides events and steps: log lines of one rank or of all, and the newest sample of the ranks."""

    logs: bool = False
    rank: int | None = None
    ranks: bool = False


@dataclass(frozen=True)
class TailItem:
    """One event, step or log line. `kind` is an event's kind, `step` or `log`; `cursor` resumes right after it."""

    kind: str
    ts: float
    data: dict[str, Any]
    cursor: Cursor


@dataclass(frozen=True)
class Tail:
    """What happened after a cursor. `done`: the job has ended and no item will follow."""

    items: list[TailItem]
    cursor: Cursor
    state: State
    done: bool
