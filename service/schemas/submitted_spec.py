"""The text of a spec, as a client reads it."""

from typing import Literal

from pydantic import Field

from .base import Value


class SubmittedSpec(Value):
    """The spec of a job as it was submitted, with its comments."""

    job: str = Field(description="Id of the job.")
    format: Literal["yaml", "json"] | None = None
    text: str | None = Field(
        None,
        description="null if the job has no text: it is a trial of a sweep, was submitted by an older version, "
        "or its text was longer than 64 KiB or may have held a credential.",
    )
    resume: str | None = Field(None, description="Address of the checkpoint with which the job began. null: with none.")
    layout_changed: bool = Field(False, description="Whether the layout of the job was changed after its submission.")
