"""A file with a secret that a user's processes share, such as the access token: made once, and readable by its owner only."""

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 4096


class NotPrivate(Exception):
    """The file cannot be read or made, or others may have read it."""


@dataclass(frozen=True)
class PrivateFile:
    """`own`: the data folder's, which we make; otherwise an operator's, such as a mounted Secret."""

    path: Path
    own: bool

    def make(self, text: str) -> None:
        """Make our own file if there is none. If several processes do so at once, one makes it and all use it. Raises NotPrivate."""
        if not self.own or os.path.lexists(self.path):
            return
        try:
            # A hard link appears with the whole content, and never replaces an existing file, not even a dangling link.
            with self._draft(text) as draft, suppress(FileExistsError):
                os.link(draft, self.path)
        except OSError as error:
            raise NotPrivate(f"It cannot be made: {error.strerror}") from None

    def replace(self, text: str) -> None:
        with self._draft(text) as draft:
            draft.replace(self.path)

    def read(self) -> str:
        """Its text. Raises NotPrivate."""
        # Opening must not block on a FIFO, and a link in the data folder may lead to another user's file.
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if self.own else 0)
        try:
            handle = os.open(self.path, flags)
        except OSError as error:
            raise NotPrivate(error.strerror or "It cannot be opened") from None
        with os.fdopen(handle, "rb") as file:
            self._check(os.fstat(handle))
            return file.read(_MOST_BYTES).decode("utf-8", "replace")

    def version(self) -> tuple[int, ...] | None:
        """Changes when the file is replaced or rewritten; None while it does not exist."""
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size

    @contextmanager
    def _draft(self, text: str) -> Iterator[Path]:
        """A temporary file beside the final path."""
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(handle)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _check(self, facts: os.stat_result) -> None:
        if not stat.S_ISREG(facts.st_mode):
            raise NotPrivate("It is not a regular file")
        if not self.own:
            if facts.st_mode & stat.S_IROTH:
                log.warning("Every user of this machine may read %s. Close it with chmod 600.", self.path)
        elif os.geteuid() not in (0, facts.st_uid):
            raise NotPrivate(f"It belongs to user {facts.st_uid}")
        elif facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise NotPrivate("Other users may have read it")
