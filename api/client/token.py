"""The token that a client sends: the configured one, else that of the data folder's own control plane.

The data folder's token goes to the address that its control plane has written into `control.json`, and only while that process lives.
Once it is gone, another user's process may listen there.
"""

from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from ...service.errors import ShardyardError
from ...service.schemas.problem import FieldError
from ...service.settings import Settings
from .. import access_token, pidfile
from .transport import ApiError


class BearerToken(httpx2.Auth):
    """Sends the token with each request, and reads it again after a 401, such as after a rotation."""

    def __init__(self, token: str | None, settings: Settings | None = None) -> None:
        """`token`: the caller's; None finds it by the settings. Raises `ApiError` for one that cannot be used."""
        self._settings = settings or Settings()
        self._given = token
        self._find("")

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        sent = self._find(str(request.url))
        answer = yield _signed(request, sent)
        if answer.status_code == 401 and (newest := self._find(str(request.url))) not in (None, sent):
            yield _signed(request, newest)

    def _find(self, url: str) -> str | None:
        try:
            if self._given is not None:
                return access_token.checked(self._given, "token")
            return access_token.given(self._settings) or self._own(url)
        except ShardyardError as error:
            finding = FieldError(field=error.field, message=error.message, remedy=error.remedy)
            raise ApiError(error.code, error.message, None, [finding]) from None

    def _own(self, url: str) -> str | None:
        """The data folder's token if `url` is the address of its control plane."""
        running = pidfile.read(self._settings.data_dir)
        if running is None or running.token_path is None or _origin(running.url) != _origin(url):
            return None
        path = Path(running.token_path)
        own = path == self._settings.data_dir / access_token.FILE_NAME
        return access_token.TokenFile(path, own=own).read()


def _signed(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
