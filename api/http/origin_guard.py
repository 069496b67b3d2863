"""A browser must not become another site's hand: host names that are not ours, and requests of other sites' pages, are refused.

A page of another site could reach through a user's browser by naming its own host after our address (DNS rebinding), or by
asking blindly (cross-site requests), and the browser would send our cookie along where only the port differs.
"""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ...service.schemas.problem import FieldError
from ...service.settings import Settings
from .authentication import is_guarded
from .problems import response

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: A pod's probes ask under its address; they learn nothing.
_PROBES = frozenset({"/healthz", "/readyz"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}


class AllowedHosts:
    """Under which names this server may be asked: those of loopback, beyond it also addresses and its own name, and those that are set."""

    def __init__(self, settings: Settings) -> None:
        self._loopback = settings.host in LOOPBACK
        own = () if self._loopback else (settings.host, socket.gethostname())
        names = {name.lower() for name in (*own, *settings.allowed_hosts)}
        self._names = LOOPBACK | names
        self._endings = tuple(name.removeprefix("*") for name in names if name.startswith("*"))

    def allows(self, host: str) -> bool:
        """`host`: a Host header."""
        name = (_hostname(f"//{host}") or "").rstrip(".")
        # Another site's name never is an address, so an address cannot be rebound.
        return name in self._names or name.endswith(self._endings) or (not self._loopback and _is_address(name))


class OwnOrigin:
    """ASGI middleware: refuses foreign names and foreign sites' pages."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _PROBES and (problem := self._problem(scope)):
            answer = response(Request(scope), "foreign_origin", problem.message, [problem])
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> FieldError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._hosts.allows(host):
            remedy = "Ask http://127.0.0.1, an address of this machine, or a name of SHARDYARD_ALLOWED_HOSTS."
            return FieldError(field="Host", message="This server does not go by this name.", remedy=remedy)
        if _is_ours(scope, headers, host):
            return None
        return FieldError(
            field="Origin", message="A page of another site may not do this.", remedy="Use this API's own page."
        )


def _is_ours(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether our own page asks, a program, or a user who types an address or follows a link to a page."""
    site = headers.get("sec-fetch-site")  # a browser's own word, which no page can change
    if site is not None:
        return site in ("same-origin", "none") or _is_visit(scope, headers)
    origin = headers.get("origin")
    return scope["method"] in _SAFE or origin is None or _origin(origin) == _origin(f"{scope['scheme']}://{host}")


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """A link of another site may lead to a page, which holds nothing before it has asked us itself."""
    return scope["method"] in _SAFE and headers.get("sec-fetch-mode") == "navigate" and not is_guarded(scope["path"])


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
