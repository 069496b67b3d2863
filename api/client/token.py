"""The token that a client sends: the configured one, else that of the data folder's own control plane.

The data folder's token goes to the address that its control plane has written into `control.json`, and only while that process lives.
Once it is gone, another user's process may listen there.

So may one at the default address, to which the environment's token goes where no other is named, such as at the port of an ended
`kubectl port-forward`. Before each connection to it the kernel is asked whose process listens: it must be this user's, root's, or that of
the owner of the token's file.
"""

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2

from ...service.errors import ShardyardError
from ...service.schemas.problem import FieldError
from ...service.settings import Settings
from .. import access_token, peer, pidfile
from .transport import ApiError

#: What httpx reports before it connects.
_CONNECTING: Final = "connection.connect_tcp.started"
_PORTS: Final = {"http": 80, "https": 443}


class BearerToken(httpx2.Auth):
    """Sends the token with each request, and reads it again after a 401, such as after a rotation."""

    def __init__(self, token: str | None, settings: Settings | None = None, *, named: bool = True) -> None:
        """`token`: the caller's; None finds it by the settings. `named`: whether the caller names the address, as the settings may, too.

        Raises `ApiError` for a token that cannot be used.
        """
        self._settings = settings or Settings()
        self._given = token
        self._named = named or bool(self._settings.url)
        self._find("")

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        def trace(event: str, _: object) -> None:
            self._look(event, request.url)

        request.extensions["trace"] = trace
        return super().sync_auth_flow(request)

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async def trace(event: str, _: object) -> None:
            self._look(event, request.url)

        request.extensions["trace"] = trace
        return super().async_auth_flow(request)

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        sent = self._find(str(request.url))
        answer = yield _signed(request, sent)
        if answer.status_code == 401 and (newest := self._find(str(request.url))) not in (None, sent):
            yield _signed(request, newest)

    def _look(self, event: str, url: httpx2.URL) -> None:
        """Raises `ApiError` before a connection over which another user of this machine would get the environment's token."""
        settings = self._settings
        configured = settings.token is not None or settings.token_path is not None
        if event != _CONNECTING or self._named or self._given is not None or not configured:
            return
        port = url.port or _PORTS[url.scheme]
        if others := peer.listeners(url.host, port) - {0, os.getuid(), os.geteuid(), *_owner(settings)}:
            finding = FieldError(
                field="url",
                message=f"A process of user {min(others)} of this machine listens there.",
                remedy="If it is your control plane, name its address with --url or SHARDYARD_URL. Else forward another port.",
            )
            raise ApiError("foreign_listener", f"Your access token was not sent to {url.host}:{port}.", None, [finding])

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


def _owner(settings: Settings) -> tuple[int, ...]:
    """The owner of the token's file. A control plane that runs as another user may hand its token out in one."""
    if settings.token is not None or settings.token_path is None:
        return ()
    try:
        return (settings.token_path.stat().st_uid,)
    except OSError:
        return ()


def _signed(request: httpx2.Request, token: str | None) -> httpx2.Request:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
