"""A job's checkpoints."""

from typing import Literal

from pydantic import Field

from .base import Value


class Checkpoint(Value):
    """A complete checkpoint of a job, and its current state."""

    position: int = Field(description="Position in the job's history.")
    ts: float = Field(description="Time in Unix seconds.")
    attempt: int
    step: int
    state: Literal["present", "corrupt", "deleted"] = Field(
        description="`present`, `corrupt` (a restore or a verification found that files differ from what was saved) or `deleted` (by a "
        "later save, see `train.checkpoint.keep`, or by hand). Only a present checkpoint can be resumed from, verified or exported."
    )
    path: str
    bytes: int | None = None
    seconds: float | None = Field(None, description="Seconds until the checkpoint was complete.")
    held_s: float | None = Field(None, description="Seconds for which the save blocked training.")


class Checkpoints(Value):
    """One page of checkpoints, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Checkpoint]
    next: int | None = None
