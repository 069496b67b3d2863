"""Files, images and tables that programs of users' own log."""

from typing import Literal

from pydantic import Field

from .base import Value


class LoggedArtifact(Value):
    """A file that a program logged, at one step."""

    name: str = Field(description="Name in the job, a relative path.")
    step: int | None = Field(None, description="The step that it belongs to; null: to the whole run.")
    type: Literal["file", "image", "table"] = Field(description="How it was logged.")
    rank: int = Field(description="The rank that logged it.")
    bytes: int
    sha256: str = Field(description="SHA-256 of its content, in hexadecimal digits.")
    media_type: str = Field(description="Type of its content, by its first bytes.")
    at: float = Field(description="When it was stored, in Unix seconds.")


class LoggedArtifacts(Value):
    """One page of a job's files, in order of name and step. `next` is the `after` of the next request, null on the last page."""

    items: list[LoggedArtifact]
    next: str | None = None
