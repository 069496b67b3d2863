"""Verifications, exports and pins of checkpoints."""

from pydantic import Field

from .base import Timestamp, Value


class Verified(Value):
    """Result of a verification, which compares every file of a checkpoint with its checksum."""

    verdict: str = Field(
        description="State of the checkpoint: `valid`, `corrupt`, or `deleted` (by a later save, or by hand)."
    )
    message: str | None = Field(None, description="What is corrupt, as text.")
    corrupt: list[str] = Field(description="Files that differ from what was saved, at most 20.")
    corrupt_files: int = Field(0, description="Number of files that differ from what was saved.")
    files: int = Field(0, description="Number of files that were compared.")
    bytes: int = Field(0, description="Bytes that were compared.")


class Exported(Value):
    """Result of an export: a checkpoint's weights as a Hugging Face folder beside the job's checkpoints."""

    path: str
    dtype: str
    files: int
    parameters: int
    bytes: int = Field(description="Size of the weight files in bytes.")
    tokenizer_missing: str | None = Field(
        None,
        description="Why the tokenizer of the training is not in the export, which then names no end of text, with a remedy; null if "
        "it is there, or if the model has the tokens of bytes.",
    )


class OperationError(Value):
    """Why an operation failed. `code` is stable."""

    code: str
    message: str
    remedy: str


class Operation(Value):
    """A verification, an export or a pin of a checkpoint, which the cluster runs. All can be repeated."""

    id: str
    job: str
    kind: str = Field(description="Kind of operation: `verify`, `export`, `pin` or `unpin`.")
    position: int = Field(description="Position of the checkpoint in the job's history.")
    step: int
    path: str = Field(description="Path of the checkpoint.")
    dtype: str | None = Field(None, description="Data type of exported weights; null for a verification.")
    state: str = Field(description="State of the operation: `pending`, `running`, `done` or `failed`.")
    verified: Verified | None = Field(None, description="Result of a finished verification.")
    exported: Exported | None = Field(None, description="Result of a finished export.")
    pinned: bool | None = Field(None, description="Whether the checkpoint is pinned after a finished pin or unpin.")
    error: OperationError | None = Field(None, description="Why the operation failed; null if it did not.")
    actor: str = Field(description="Name of the user who requested the operation.")
    asked_at: Timestamp
    started_at: Timestamp | None = None
    settled_at: Timestamp | None = Field(None, description="Time at which the operation was done or failed.")


class Operations(Value):
    """One page of operations, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Operation]
    next: str | None = None
