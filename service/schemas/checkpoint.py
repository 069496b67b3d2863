"""A job's checkpoints."""

from typing import Literal

from pydantic import Field

from .base import Value


class Checkpoint(Value):
    """A complete checkpoint that a job told of, and what has become of it."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    step: int
    state: Literal["present", "damaged", "removed"] = Field(
        description="`removed`: by a later save, to make room (`train.checkpoint.keep`), or by hand, as a verification found. `damaged`: "
        "a restore or a verification found files that are not as they were saved. Neither can be resumed from, verified or exported."
    )
    path: str
    bytes: int | None = None
    seconds: float | None = Field(None, description="Until it was complete.")
    held_s: float | None = Field(None, description="Of those, training was held.")


class Checkpoints(Value):
    """Checkpoints, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Checkpoint]
    next: int | None = None
