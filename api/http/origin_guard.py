"""Refuses requests with foreign host names, and requests from pages of other sites.

A page of another site could reach this server through a user's browser, by naming its own host after our address (DNS rebinding),
or by sending requests blindly (cross-site requests). The browser would even send our cookie along if only the port differs. A WebSocket's
answers could even be read by that page, so no handshake counts as safe.
"""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ...service.schemas.problem import FieldError
from ...service.settings import Settings
from .authentication import is_guarded
from .problems import response

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: A pod's probes use its address as host name; their answers reveal nothing.
_PROBES = frozenset({"/healthz", "/readyz"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}
#: The scheme of a page's origin by that of its WebSocket.
_OF_PAGE = {"ws": "http", "wss": "https"}


class AllowedHosts:
    """Host names of this server: those of loopback, otherwise also addresses and its own name, and those that are set."""

    def __init__(self, settings: Settings) -> None:
        self._loopback = settings.host in LOOPBACK
        own = () if self._loopback else (settings.host, socket.gethostname())
        names = {name.lower() for name in (*own, *settings.allowed_hosts)}
        self._names = LOOPBACK | names
        self._endings = tuple(name.removeprefix("*") for name in names if name.startswith("*"))

    def allows(self, host: str) -> bool:
        """`host`: a Host header."""
        name = (_hostname(f"//{host}") or "").rstrip(".")
        # Another site's name is never an address, so an address cannot be rebound.
        return name in self._names or name.endswith(self._endings) or (not self._loopback and _is_address(name))


class OwnOrigin:
    """ASGI middleware: refuses foreign host names and other sites' pages."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] in ("http", "websocket") and scope["path"] not in _PROBES
        if guarded and (problem := self._problem(scope)):
            answer = response(HTTPConnection(scope), "foreign_origin", problem.message, [problem])
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> FieldError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._hosts.allows(host):
            remedy = "Use http://127.0.0.1, an address of this machine, or a name of SHARDYARD_ALLOWED_HOSTS."
            return FieldError(field="Host", message="This host name is not one of the server's.", remedy=remedy)
        if _is_ours(scope, headers, host):
            return None
        return FieldError(
            field="Origin",
            message="A page of another site may not send this request.",
            remedy="Use this API's own page.",
        )


def _is_ours(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether the request comes from our own page, a program, or a user who types an address or follows a link to a page."""
    site = headers.get("sec-fetch-site")  # set by the browser; no page can change it
    if site is not None:
        return site in ("same-origin", "none") or _is_visit(scope, headers)
    return _is_safe(scope) or _has_own_origin(scope, headers, host)


def _is_safe(scope: Scope) -> bool:
    """Whether another site's page learns and changes nothing by the request."""
    return scope["type"] == "http" and scope["method"] in _SAFE


def _has_own_origin(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether `Origin` names this server. Programs send none."""
    origin, scheme = headers.get("origin"), _OF_PAGE.get(scope["scheme"], scope["scheme"])
    return origin is None or _origin(origin) == _origin(f"{scheme}://{host}")


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Whether a link of another site leads to a page, which contains no data before it has sent a request itself."""
    return _is_safe(scope) and headers.get("sec-fetch-mode") == "navigate" and not is_guarded(scope["path"])


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
