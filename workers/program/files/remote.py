"""`Remote`, the interface of sources that are fetched: lists files with their checksums, and reads ranges of bytes.

Every request ends by a time-out. `Unanswered` is raised where a later try may succeed, FilesNotFetched where none would.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

from .errors import UNREACHABLE, FilesNotFetched
from .listing import Listing, RemoteFile
from .source import Source


class Unanswered(FilesNotFetched):
    """The source does not answer now. `wait_s`: seconds after which it says that it will."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why, UNREACHABLE)
        self.wait_s = wait_s


class Damaged(Exception):
    """The bytes of a file have another checksum than the source says. Another try may be whole."""


class Digest(Protocol):
    """What `hashlib` makes."""

    def update(self, data: bytes, /) -> Any: ...
    def hexdigest(self) -> str: ...


class Remote(ABC):
    """One source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @abstractmethod
    def listing(self) -> Listing:
        """The files that it has now. Raises FilesNotFetched, Unanswered."""

    @abstractmethod
    def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> bytes:
        """The bytes from `start` to `end` of a listed file, all of them. Raises FilesNotFetched, Unanswered."""

    @abstractmethod
    def digest(self, file: RemoteFile) -> Digest:
        """What computes the checksum of a listed file."""

    @abstractmethod
    def verify(self, file: RemoteFile, digest: str) -> None:
        """Check a file that was read whole. Raises Damaged, FilesNotFetched if it changed meanwhile, Unanswered."""

    def cached(self, _: Listing) -> Path | None:
        """The listed files where this node has them already, whole, by other means than this cache; None if it does not."""
        return None

    def changed(self, file: RemoteFile) -> FilesNotFetched:
        """The error for a file that is not the listed one any more."""
        return FilesNotFetched(
            f"{self.source.where}: {file.name} has changed since this job first read it; submit the job again for its new content."
        )
