"""`Listing`: which files a source had when the job first read it, with their checksums. All ranks and attempts fetch these, or none.

Names come from the source, so each is checked before it becomes a path.
"""

import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from ...messages import json_codec
from .errors import FilesNotFetched

#: A listing has this number of files at most, so that it fits into memory.
MOST_FILES: Final = 100_000
#: Bytes of a name, and of a path.
_MOST_NAME: Final = 255
_MOST_PATH: Final = 1024


@dataclass(frozen=True)
class RemoteFile:
    """One file. `check`: `etag:…` of S3, `sha256:…` of a large file of the Hub, or `git:…` of a small one."""

    path: str  # below the mount; of a single file its name
    bytes: int
    check: str
    key: str = ""  # name at the source, if that is not `path`

    @property
    def name(self) -> str:
        """Its name at the source."""
        return self.key or self.path


@dataclass(frozen=True)
class Listing:
    """The files of one source."""

    source: str
    files: tuple[RemoteFile, ...] = ()
    revision: str = ""  # commit of the Hub
    single: bool = False  # the source is a file, and so is the mount

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def digest(self) -> str:
        """Equal listings have equal digests: 32 hexadecimal digits."""
        return hashlib.sha256(json_codec.dumps(self)).hexdigest()[:32]


def checked(listing: Listing) -> Listing:
    """The listing. Raises FilesNotFetched if it is empty or too long, or a name is unfit for a path."""
    where = listing.source
    if not listing.files:
        raise FilesNotFetched(f"{where}: there is no such file, and no file below it; correct the source.")
    if len(listing.files) > MOST_FILES:
        raise too_many(where)
    names = {file.path for file in listing.files}
    for file in listing.files:
        path = PurePosixPath(file.path)
        parts = file.path.split("/")
        unfit = any(part in ("", ".", "..") or len(part.encode()) > _MOST_NAME for part in parts)
        if unfit or len(file.path.encode()) > _MOST_PATH or not file.path.isprintable():
            raise FilesNotFetched(f"{where}: {file.path[:200]!r} is unfit as the name of a file; rename it there.")
        if any(str(parent) in names for parent in path.parents):
            raise FilesNotFetched(f"{where}: {file.path[:200]!r} is below a file of that name; rename one of them.")
    return listing


def too_many(where: str) -> FilesNotFetched:
    """The error for a source with more than `MOST_FILES`."""
    return FilesNotFetched(f"{where}: it has more than {MOST_FILES:,} files; pack them, or name a smaller prefix.")
