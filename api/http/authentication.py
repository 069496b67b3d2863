"""Authenticates requests: by the access token, or by the session of a browser that signed in with it. The result is an `Actor`.

- The token is kept as a digest and compared in constant time. A replaced token file takes effect within a second.
- Sessions and sign-in codes are signed with a key that is derived from the token. So every replica accepts them, and a new token
  ends them.
- All paths below `/v1` and the API's description need an actor, also for a WebSocket. The pages' files, `/healthz` and `/readyz` do not:
  they name no job.
- The routes see no cookies but sessions. All others are removed unread, before FastAPI parses the cookies of every request.
"""

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ...service.errors import ShardyardError
from ...service.settings import Settings
from ..access_token import checked, token_file
from ..errors import Unauthenticated
from .problems import refusal

log = logging.getLogger(__name__)

#: Seconds for which a browser stays signed in.
SESSION_S: Final = 7 * 86_400
#: Seconds for which the link of `shardyard open` is valid.
CODE_S: Final = 600
#: Seconds by which the clock of the replica, or of the machine, that made a session or a code may be ahead of this one's.
CLOCK_S: Final = 60
#: Seconds for which a token file is used without checking it again.
_REREAD_S: Final = 1.0
_GUARDED: Final = ("/v1/", "/openapi.json")
#: The path for signing a browser in and out.
SESSION_PATH: Final = "/v1/session"
#: One part of a Cookie header that may be a session, of any token: a signed value is URL-safe and has some 70 characters.
_SESSION_COOKIE: Final = re.compile(rb"\s*shardyard-[0-9a-f]{12}=[A-Za-z0-9_.-]{1,1024}\s*")


@dataclass(frozen=True)
class Actor:
    """The authenticated actor. The token's holder may do everything; users and their permissions are to be added here."""

    name: str


OWNER: Final = Actor("local")


class Keys:
    """What is derived from one token: its digest, and the keys that sign sessions and codes. The token itself is not kept."""

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()
        #: A cookie belongs to a host name and not to its port: control planes of one machine must not accept each other's.
        self.cookie = f"shardyard-{hashlib.sha256(b'cookie' + self._digest).hexdigest()[:12]}"
        self._sessions = self._signed("session")
        self._codes = self._signed("code")

    def gate_token(self, name: str) -> str:
        """The token of the gate for streams of this name (`service/orders/stream_gates.py`)."""
        return hmac.new(self._digest, b"shardyard gate " + name.encode(), hashlib.sha256).hexdigest()

    def fits(self, token: str) -> bool:
        """Whether `token` is the token. Takes the same time for every wrong token."""
        return hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._digest)

    def session(self, actor: Actor) -> str:
        """The cookie's value for a session of `actor`."""
        return str(self._sessions.dumps(actor.name))

    def actor_of(self, session: str) -> Actor | None:
        found = _loaded(self._sessions, session, SESSION_S)
        return None if found is None else Actor(found[0])

    def code(self, user: int | None) -> str:
        """A code that signs a browser in once. `user`: the only user of this machine, besides root, whose browser may use it."""
        return str(self._codes.dumps([secrets.token_urlsafe(12), user]))

    def opened(self, code: str) -> tuple[str, int | None, float] | None:
        """A code's own number, its user, and when it was made (unix seconds); None for a code that is not ours, or too old."""
        found = _loaded(self._codes, code, CODE_S)
        if found is None:
            return None
        (number, user), made_at = found
        return number, user, made_at

    def _signed(self, purpose: str) -> URLSafeTimedSerializer:
        digest = {"digest_method": hashlib.sha256, "key_derivation": "hmac"}
        return URLSafeTimedSerializer(self._digest, salt=f"shardyard {purpose}", signer_kwargs=digest)


def _loaded(serializer: URLSafeTimedSerializer, signed: str, limit_s: float) -> tuple[Any, float] | None:
    """What was signed, and when (unix seconds); None if it is not ours, or too old."""
    try:
        content, signed_at = serializer.loads(signed, return_timestamp=True)
    except BadSignature:
        return None
    at = float(signed_at.timestamp())
    return (content, at) if -CLOCK_S <= int(time.time()) - at <= limit_s else None


class Authenticator:
    """Finds the actor of a request by the settings' token. Reading the token may raise `TokenUnreadable`, `WeakToken`."""

    def __init__(self, settings: Settings) -> None:
        self._given = settings.token
        self._file = token_file(settings)
        self._keys: Keys | None = None
        self._version: tuple[int, ...] | None = None
        self._looked_at = 0.0
        self._complaint = ""
        # It is unknown whether an older code was used, so it is refused, without the grace of `CLOCK_S`: who is refused asks for another
        # link, but what was used just before a restart would be good again after it. So is one that a clock ahead of ours has dated
        # after the restart: that one signs in once more.
        self._began = int(time.time())
        self._used: dict[str, float] = {}

    @property
    def token_path(self) -> str | None:
        """The path at which clients of this machine find the token; None if the settings have its text."""
        return None if self._given else str(self._file.path)

    def load(self) -> None:
        """Read the token; make the data folder's if there is none. Raises `TokenUnreadable`, `WeakToken`."""
        self._keys = self._keys or self._read()

    @property
    def keys(self) -> Keys:
        """The keys of the newest token. If it cannot be read, the previous one stays valid, and a warning is logged."""
        now = time.monotonic()
        if self._keys is None:
            self._keys = self._read()
        elif self._given is None and now - self._looked_at >= _REREAD_S:
            self._looked_at = now
            self._keys = self._newest(self._keys)
        return self._keys

    def actor_of(self, request: HTTPConnection) -> Actor | None:
        """The actor of a request, or None. No other function authenticates requests."""
        keys = self.keys
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":  # another scheme may be for a proxy in front
            return OWNER if keys.fits(token.strip()) else None
        session = request.cookies.get(keys.cookie)
        return keys.actor_of(session) if session else None

    async def redeem(self, code: str, user_of: Callable[[], Awaitable[int | None]]) -> Actor | None:
        """The actor that a code signs in, once.

        `user_of`: finds the user of this machine who sends it; None if it comes from another machine. It is called for no code of others.
        """
        now = time.monotonic()
        self._used = {number: end for number, end in self._used.items() if end > now}
        found = self.keys.opened(code)
        if found is None:
            return None
        number, of, made_at = found
        if number in self._used or made_at < self._began:
            return None
        if of is not None and await user_of() not in (None, 0, of):
            return None
        if number in self._used:  # by another request, while this one's user was looked up
            return None
        self._used[number] = now + CODE_S + CLOCK_S  # it may be dated ahead
        return OWNER

    def _newest(self, keys: Keys) -> Keys:
        if self._file.version() == self._version:
            return keys
        try:
            return self._read()
        except ShardyardError as error:
            self._complain(str(error))
            return keys

    def _read(self) -> Keys:
        if self._given is not None:
            return Keys(checked(self._given.get_secret_value(), "SHARDYARD_TOKEN"))
        self._file.make()
        version, token = self._file.version(), self._file.read()
        self._version, self._complaint = version, ""
        return Keys(token)

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("%s The previous token stays valid.", complaint)


class Authenticated:
    """ASGI middleware: guarded paths need an actor, which it stores in the request's state.

    Without authenticator, every request is the owner's.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator | None) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope = _with_sessions_only(scope)
        if is_guarded(scope["path"]):
            request = HTTPConnection(scope)
            actor = self._authenticator.actor_of(request) if self._authenticator else OWNER
            if actor is None:
                await refusal(request, unauthenticated())(scope, receive, send)
                return
            request.state.actor = actor
        await self._app(scope, receive, send)


def _with_sessions_only(scope: Scope) -> Scope:
    """The request without cookies that cannot be sessions.

    Starlette unquotes the value of every cookie, and FastAPI has it do so for every route. Before Python 3.11.10 that takes quadratic
    time (CVE-2024-7592).
    """
    cookies = [part for name, sent in scope["headers"] if name == b"cookie" for part in sent.split(b";")]
    sessions = [part.strip() for part in cookies if _SESSION_COOKIE.fullmatch(part)]
    others = [header for header in scope["headers"] if header[0] != b"cookie"]
    return {**scope, "headers": [*others, *((b"cookie", session) for session in sessions)]}


def unauthenticated() -> Unauthenticated:
    return Unauthenticated(
        "This request needs the control plane's access token.",
        field="Authorization",
        remedy="Open the page with: shardyard open. Programs send `Authorization: Bearer TOKEN` (SHARDYARD_TOKEN, or "
        "SHARDYARD_TOKEN_PATH); shardyard token prints it.",
    )


def is_guarded(path: str) -> bool:
    """Whether only actors may request this path."""
    return path.startswith(_GUARDED) and path != SESSION_PATH
