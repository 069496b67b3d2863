"""A file of a job on its way to this machine: it appears whole at its place, or not at all.

What has arrived is kept beside the place under the file's SHA-256, so a download that broke off continues, and never with another file.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...service.errors import MissingFile
from ...service.schemas.artifact import LoggedArtifact
from ...service.schemas.problem import FieldError
from ...workers.atomic_files import sync_folder
from ...workers.messages.artifact import check_name
from ..given_path import given_path
from .transport import ApiError

#: Endings of files that were logged under a name without one.
_ENDINGS: Final = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "text/csv": ".csv"}
_BLOCK: Final = 1 << 20


class ArtifactFile:
    """The file at `place`, of which a part may have arrived before."""

    def __init__(self, place: Path, digest: str) -> None:
        self.place, self.digest = place, digest
        place.parent.mkdir(parents=True, exist_ok=True)
        self._partial = place.with_name(f".{digest[:32]}.partial")

    @property
    def arrived(self) -> int:
        """Bytes that are here."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    @property
    def rest(self) -> dict[str, str]:
        """Headers of a request for the bytes that are missing; for all of them if the file is another one now."""
        return {"Range": f"bytes={self.arrived}-", "If-Range": f'"{self.digest}"'}

    def write(self, block: bytes) -> None:
        with self._partial.open("ab") as file:
            file.write(block)

    def begin(self, *, resumed: bool, known: bool) -> bool:
        """Whether to write what comes. False if a part of it is here from an earlier call: then the rest is to be requested.

        `resumed`: what comes is the rest. `known`: whether the rest was requested, if there was a part.
        """
        if not resumed and self.arrived and not known:
            return False
        if not resumed:
            self.restart()
        return True

    def restart(self) -> None:
        """Forget what has arrived."""
        self._partial.unlink(missing_ok=True)

    def finish(self) -> Path:
        """The complete file, at its place and on the disk. Raises ApiError if it has another content; then nothing is kept."""
        self._partial.touch()
        with self._partial.open("rb+") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if found != self.digest:
            self.restart()
            remedy = FieldError(field="name", message="Its SHA-256 is another one.", remedy="Download it again.")
            raise ApiError("artifact_damaged", f"{self.place.name} did not arrive as it was stored.", None, [remedy])
        self._partial.replace(self.place)
        sync_folder(self.place.parent)
        return self.place


def place_of(to: str | Path, name: str) -> Path:
    """The path `to`; in it, if it is a folder, the last part of the file's name. Raises ApiError."""
    place = _given(to)
    return place / name.rpartition("/")[2] if place.is_dir() else place


def place_below(to: str | Path, path: str) -> Path:
    """The place of a relative path in the folder `to`. Raises ApiError for one that leads elsewhere."""
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ApiError("not_shardyard", f"The server sent a path that is none: {path[:80]!r}.")
    return _given(to) / path


def _given(to: str | Path) -> Path:
    try:
        return given_path(to, "to")
    except MissingFile as error:
        finding = FieldError(field=error.field, message=error.message, remedy=error.remedy)
        raise ApiError(error.code, error.message, None, [finding]) from None


def is_there(place: Path, size: int, digest: str) -> bool:
    """Whether the file is complete at its place."""
    if place.is_symlink() or not place.is_file() or place.stat().st_size != size:
        return False
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def remove_other(place: Path, size: int, digest: str) -> None:
    """Remove the file at the place, unless it is complete there already."""
    if not is_there(place, size, digest):
        place.unlink(missing_ok=True)


def digest_of(headers: Mapping[str, str], wanted: str | None = None) -> str:
    """The SHA-256 that a download has as its tag. Raises ApiError, also if another one is `wanted`."""
    found = headers.get("ETag", "").strip('"')
    if len(found) != 64 or not set(found) <= set("0123456789abcdef"):
        raise ApiError("not_shardyard", "The download has no SHA-256 as its ETag.")
    if wanted not in (None, found):
        raise ApiError("checkpoint_changed", "The file is another one now: it was saved or logged again.")
    return found


def local_path(folder: Path, artifact: LoggedArtifact) -> Path:
    """Where a file is placed below a folder: steps have files of their own. Raises ApiError for a name that leads elsewhere."""
    try:
        check_name(artifact.name)
    except ValueError as error:
        raise ApiError("not_shardyard", f"The server sent a name that is none: {error}.") from None
    path = folder / artifact.name
    ending = path.suffix or _ENDINGS.get(artifact.media_type, "")
    step = "" if artifact.step is None else f".step-{artifact.step}"
    return path.with_name(f"{path.name.removesuffix(path.suffix)}{step}{ending}")
