"""A browser on this machine must not become another site's hand: foreign host names and foreign origins are refused.

Without authentication, loopback is the only wall. A page of another site could reach through it by naming its own host
after 127.0.0.1 (DNS rebinding) or by posting blindly (cross-site requests).
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .models import FieldError
from .problems import response

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class OwnOrigin:
    """ASGI middleware. `loopback`: the server listens on loopback alone, so only loopback names can be meant."""

    def __init__(self, app: ASGIApp, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._problem(scope["method"], Headers(scope=scope))):
            request = Request(scope)
            answer = response(request, "foreign_origin", problem.message, [problem])
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, method: str, headers: Headers) -> FieldError | None:
        host = headers.get("host", "")
        if self._loopback and _hostname(f"http://{host}") not in LOOPBACK:
            return FieldError(
                field="Host", message="This API listens on loopback alone.", remedy="Ask http://127.0.0.1."
            )
        origin = headers.get("origin")
        if method in _SAFE or origin is None or urlsplit(origin).netloc == host:
            return None
        return FieldError(
            field="Origin", message="A page of another site may not do this.", remedy="Use this API's own page."
        )


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
