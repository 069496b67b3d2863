"""The access token: a request that carries it is authenticated as the owner.

- A data folder's own token is 256 random bits. It is made once, appears in the file atomically, and only its owner can read it.
- `SHARDYARD_TOKEN` and `SHARDYARD_TOKEN_PATH` replace it, for the server and for clients.
- No log, no address and no error contains it; only `shardyard token` prints it.
"""

import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..service.settings import Settings
from .errors import TokenUnreadable, WeakToken

log = logging.getLogger(__name__)

#: Name of the file in the data folder.
FILE_NAME: Final = "token"
_RANDOM_BYTES: Final = 32
_LONGEST: Final = 1024
#: Characters that may follow `Bearer` (RFC 6750), and enough of them that the token cannot be guessed.
_FORM: Final = re.compile(r"[A-Za-z0-9._~+/-]{32,512}=*")


@dataclass(frozen=True)
class TokenFile:
    """A file with a token. `own`: the data folder's, which we make; otherwise an operator's, such as a mounted Secret."""

    path: Path
    own: bool

    def make(self) -> None:
        """Make the data folder's token if there is none. If several processes do so at once, one makes it and all use it."""
        if not self.own or os.path.lexists(self.path):
            return
        # A hard link appears with the whole content, and never replaces an existing file, not even a dangling link.
        with self._draft() as draft, suppress(FileExistsError):
            os.link(draft, self.path)

    def replace(self) -> None:
        """Replace the data folder's token by a new one."""
        with self._draft() as draft:
            draft.replace(self.path)

    def read(self) -> str:
        """The token. Raises `TokenUnreadable`, `WeakToken`."""
        # Opening must not block on a FIFO, and a link in the data folder may lead to another user's file.
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if self.own else 0)
        try:
            handle = os.open(self.path, flags)
        except OSError as error:
            raise TokenUnreadable(self.path, error.strerror or "It cannot be opened", own=self.own) from None
        with os.fdopen(handle, "rb") as file:
            self._check(os.fstat(handle))
            return checked(file.read(_LONGEST).decode("utf-8", "replace"), str(self.path))

    def version(self) -> tuple[int, ...] | None:
        """Changes when the file is replaced or rewritten; None while it does not exist."""
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """A new token in a temporary file beside its final path."""
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(_RANDOM_BYTES) + "\n")
                file.flush()
                os.fsync(handle)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _check(self, facts: os.stat_result) -> None:
        if not stat.S_ISREG(facts.st_mode):
            raise TokenUnreadable(self.path, "It is not a regular file", own=self.own)
        if not self.own:
            if facts.st_mode & stat.S_IROTH:
                log.warning("Every user of this machine may read the token in %s. Close it with chmod 600.", self.path)
        elif os.geteuid() not in (0, facts.st_uid):
            raise TokenUnreadable(self.path, f"It belongs to user {facts.st_uid}", own=True)
        elif facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TokenUnreadable(self.path, "Other users may have read it", own=True)


def token_file(settings: Settings) -> TokenFile:
    """The token's file according to the settings. `SHARDYARD_TOKEN`, if it is set, takes precedence over it."""
    if settings.token_path is not None:
        return TokenFile(settings.token_path, own=False)
    return TokenFile(settings.data_dir / FILE_NAME, own=True)


def given(settings: Settings) -> str | None:
    """The token of the environment, as text or from its file; None if there is none. Raises `TokenUnreadable`, `WeakToken`."""
    if settings.token is not None:
        return checked(settings.token.get_secret_value(), "SHARDYARD_TOKEN")
    return token_file(settings).read() if settings.token_path is not None else None


def checked(text: str, where: str) -> str:
    """The token without surrounding white space. Raises `WeakToken`."""
    token = text.strip()
    if not _FORM.fullmatch(token):
        raise WeakToken(where)
    return token


def sign_in_link(url: str, code: str, path: str = "/") -> str:
    """A page's address that signs a browser in. A fragment is not sent to servers, so no log holds the code."""
    return f"{url}{path}#code={code}"
