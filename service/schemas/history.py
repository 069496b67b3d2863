"""Everything that happened to a job, a page at a time."""

from typing import Any, Literal

from pydantic import Field

from .base import Value


class StoryEntry(Value):
    """One thing that happened to a job."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    kind: Literal["state", "checkpoint", "incident", "repair", "reshard", "fault"]
    data: dict[str, Any] = Field(description="What the event tells; of an incident, not its stacks and last lines.")


class Story(Value):
    """What happened, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[StoryEntry]
    next: int | None = None
