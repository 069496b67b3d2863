"""Verifications and exports of checkpoints."""

from pydantic import Field

from .base import Timestamp, Value


class Verified(Value):
    """How a checkpoint was found where gangs run: every file against its checksum."""

    verdict: str = Field(description="`whole`, `damaged`, or `removed` (to make room, or by hand).")
    message: str | None = Field(None, description="What is damaged.")
    damaged: list[str] = Field(description="Files that are not as they were saved, at most 20 of them.")
    damaged_files: int = 0
    files: int = Field(0, description="That were compared.")
    bytes: int = 0


class Exported(Value):
    """A checkpoint's weights as a Hugging Face folder, in the job's own."""

    path: str
    dtype: str
    files: int
    parameters: int
    bytes: int = Field(description="Of the files of weights.")


class OperationError(Value):
    code: str
    message: str
    remedy: str


class Operation(Value):
    """Something that the cluster was asked to do with a checkpoint. Both kinds may be asked for again."""

    id: str
    job: str
    kind: str = Field(description="`verify` or `export`.")
    n: int = Field(description="The checkpoint's place in the job's story.")
    step: int
    path: str = Field(description="The checkpoint's.")
    dtype: str | None = Field(None, description="Of an export's weights.")
    state: str = Field(description="`pending`, `running`, `done` or `failed`.")
    verified: Verified | None = Field(None, description="When a `verify` is done.")
    exported: Exported | None = Field(None, description="When an `export` is done.")
    error: OperationError | None = Field(None, description="When it has failed.")
    actor: str = Field(description="Who asked.")
    asked_at: Timestamp
    started_at: Timestamp | None = None
    settled_at: Timestamp | None = Field(None, description="When it was done or failed.")


class Operations(Value):
    """Operations, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Operation]
    next: str | None = None
