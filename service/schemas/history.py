"""Events of a job, page by page."""

from typing import Any, Literal

from pydantic import Field

from .base import Value


class HistoryEntry(Value):
    """One event of a job."""

    position: int = Field(description="Position in the job's history.")
    ts: float = Field(description="Time in Unix seconds.")
    attempt: int
    kind: Literal["state", "checkpoint", "incident", "repair", "reshard", "fault"]
    data: dict[str, Any] = Field(
        description="Data of the event. An incident's stack traces and log lines are left out."
    )


class HistoryPage(Value):
    """One page of events, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[HistoryEntry]
    next: int | None = None
