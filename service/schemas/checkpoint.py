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
    pinned: bool = Field(False, description="Whether no later save removes it.")
    models: list[str] = Field(default_factory=list, description="Versions of models that it is, as `NAME@NUMBER`.")
    path: str
    bytes: int | None = None
    seconds: float | None = Field(None, description="Seconds until the checkpoint was complete.")
    held_s: float | None = Field(None, description="Seconds for which the save paused training.")


class Checkpoints(Value):
    """One page of checkpoints, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Checkpoint]
    next: int | None = None


class CheckpointFile(Value):
    """A file of a checkpoint."""

    path: str = Field(
        description="Relative path. A program's own path, below `rank-NNNNN/` if several ranks saved; else a stored file's name."
    )
    bytes: int
    sha256: str = Field(description="SHA-256 of its content, in hexadecimal digits.")


class CheckpointFiles(Value):
    """One page of a checkpoint's files, in order of their paths. `next` is the `after` of the next request, null on the last page."""

    step: int
    digest: str = Field(
        description="Checksum of the checkpoint's manifest, which names the checksums of all its files."
    )
    items: list[CheckpointFile]
    next: str | None = None
