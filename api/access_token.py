"""The access token: a request that carries it is authenticated as the owner.

- A data folder's own token is 256 random bits. It is made once, appears in the file atomically, and only its owner can read it.
- `SHARDYARD_TOKEN` and `SHARDYARD_TOKEN_PATH` replace it, for the server and for clients.
- No log, no address and no error contains it; only `shardyard token` prints it.
"""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..service.private_file import NotPrivate, PrivateFile
from ..service.settings import Settings
from .errors import TokenUnreadable, WeakToken

#: Name of the file in the data folder.
FILE_NAME: Final = "token"
_RANDOM_BYTES: Final = 32
#: Characters that may follow `Bearer` (RFC 6750), and enough of them that the token cannot be guessed.
_FORM: Final = re.compile(r"[A-Za-z0-9._~+/-]{32,512}=*")


@dataclass(frozen=True)
class TokenFile:
    """A file with a token. `own`: the data folder's, which we make; otherwise an operator's, such as a mounted Secret."""

    path: Path
    own: bool

    @property
    def _file(self) -> PrivateFile:
        return PrivateFile(self.path, self.own)

    def make(self) -> None:
        """Make the data folder's token if there is none. If several processes do so at once, one makes it and all use it.

        Raises `TokenUnreadable`.
        """
        try:
            self._file.make(secrets.token_urlsafe(_RANDOM_BYTES))
        except NotPrivate as error:
            raise TokenUnreadable(self.path, str(error), own=self.own) from None

    def replace(self) -> None:
        """Replace the data folder's token by a new one."""
        self._file.replace(secrets.token_urlsafe(_RANDOM_BYTES))

    def read(self) -> str:
        """The token. Raises `TokenUnreadable`, `WeakToken`."""
        try:
            return checked(self._file.read(), str(self.path))
        except NotPrivate as error:
            raise TokenUnreadable(self.path, str(error), own=self.own) from None

    def version(self) -> tuple[int, ...] | None:
        """Changes when the file is replaced or rewritten; None while it does not exist."""
        return self._file.version()


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
