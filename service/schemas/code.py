"""Archives of code that jobs run."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...workers import code_archive
from .base import Timestamp, Value

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class CodeManifest(BaseModel):
    """What an archive consists of: a tar file, cut into parts of 4 MiB; the last one may be shorter."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    bytes: int = Field(ge=1, le=code_archive.MOST_BYTES, description="Size of the tar file.")
    files: int = Field(ge=1, le=code_archive.MOST_FILES, description="Number of files in it.")
    parts: list[Sha256] = Field(
        max_length=code_archive.MOST_BYTES // code_archive.PART_BYTES, description="SHA-256 of each part's bytes."
    )
    commit: Sha256 | Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")] | None = Field(
        None, description="Git commit that the folder is at."
    )
    diff: Annotated[str, StringConstraints(max_length=code_archive.MOST_DIFF, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="Changes since that commit, as `git diff` prints them; perhaps cut."
    )


class CodeArchive(Value):
    """An archive of code. Jobs name it in `code.archive`."""

    id: str = Field(description="SHA-256 of its manifest.")
    bytes: int
    files: int
    complete: bool = Field(description="Whether all parts have arrived, so that jobs can name it.")
    missing: list[int] = Field(description="Numbers of the parts that have not arrived, from 0 on.")
    commit: str | None = None
    diff: str | None = Field(None, description="Changes since the commit; null if there are none, or in other answers.")
    actor: str = Field(description="Name of the user who uploaded it first.")
    created_at: Timestamp

    @property
    def arrived(self) -> int:
        """Bytes of the parts that have arrived."""
        last = -(-self.bytes // code_archive.PART_BYTES) - 1
        left = sum(code_archive.PART_BYTES for number in self.missing if number != last)
        return self.bytes - left - (self.bytes - last * code_archive.PART_BYTES if last in self.missing else 0)
