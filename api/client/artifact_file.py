"""A file of a job on its way to this machine: it appears whole at its place, or not at all.

What has arrived is kept beside the place under the file's SHA-256, so a download that broke off continues, and never with another file.
One download at a time writes to it, by a lock that the kernel releases when its holder dies.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Mapping
from io import BufferedRandom
from pathlib import Path
from typing import Final, Self

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
    """The file at `place`, of which a part may have arrived before. That part is this download's own until the context ends."""

    def __init__(self, place: Path) -> None:
        self.place, self._digest = place, ""
        self._part: _Part | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._part is not None:
            self._part.close()

    @property
    def arrived(self) -> int:
        """Bytes that are here."""
        return 0 if self._part is None else self._part.size

    @property
    def rest(self) -> dict[str, str]:
        """Headers of a request for the bytes that are missing; for all of them if the file is another one now, or none is here."""
        return {"Range": f"bytes={self.arrived}-", "If-Range": f'"{self._digest}"'} if self.arrived else {}

    def begin(self, digest: str, *, resumed: bool) -> bool:
        """Whether to write what comes. False if a part of it is here from an earlier call: then the rest is to be requested.

        `digest`: the SHA-256 of the file that comes. `resumed`: what comes is the rest.
        """
        known = self._part is not None
        if self._part is None or digest != self._digest:
            if self._part is not None:
                self._part.close()
            self.place.parent.mkdir(parents=True, exist_ok=True)
            self._part, self._digest = _Part.beside(self.place, digest), digest
        if not resumed and self._part.size:
            if not known:
                return False
            self._part.clear()
        return True

    def write(self, block: bytes) -> None:
        assert self._part is not None
        self._part.file.write(block)
        self._part.file.flush()

    def finish(self) -> Path:
        """The complete file, at its place and on the disk. Raises ApiError if it has another content; then nothing is kept."""
        assert self._part is not None
        file = self._part.file
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        if found != self._digest:
            self._part.clear()
            remedy = FieldError(field="name", message="Its SHA-256 is another one.", remedy="Download it again.")
            raise ApiError("artifact_damaged", f"{self.place.name} did not arrive as it was stored.", None, [remedy])
        self._part.path.replace(self.place)
        self._part.file.close()
        self._part = None
        sync_folder(self.place.parent)
        return self.place


class _Part:
    """What has arrived of a file. `kept`: the next download of this content continues it."""

    def __init__(self, path: Path, file: BufferedRandom, *, kept: bool) -> None:
        self.path, self.file, self._kept = path, file, kept

    @staticmethod
    def beside(place: Path, digest: str) -> "_Part":
        """The part of this content, locked; a new one while another download has it."""
        path = place.with_name(f".{digest[:32]}.partial")
        file = path.open("a+b")
        if _lock(file) and _is_at(path, file):
            return _Part(path, file, kept=True)
        file.close()
        path = place.with_name(f".{digest[:32]}.{secrets.token_hex(8)}.partial")
        return _Part(path, path.open("x+b"), kept=False)

    @property
    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def clear(self) -> None:
        self.file.seek(0)
        self.file.truncate()

    def close(self) -> None:
        """Release the part. What cannot be continued is removed before, while no other download can have it."""
        if not self._kept or self.size == 0:
            self.path.unlink(missing_ok=True)
        self.file.close()


def _lock(file: BufferedRandom) -> bool:
    """Whether no other download has the file now. On a file system without locks that is not known: there is none then."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_at(path: Path, file: BufferedRandom) -> bool:
    """Whether this is the file's path. It is none any more if another download completed the file before it was locked."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


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
