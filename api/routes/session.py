"""A browser's session: it starts with the access token or a code of `shardyard open`, and ends when the browser signs out."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response

from ...service.schemas.session import Session, SignIn, SignInCode
from ..errors import Unauthenticated
from ..http import request_body
from ..http.authentication import CODE_S, OWNER, SESSION_PATH, SESSION_S, Actor, Authenticator
from ..http.dependencies import In
from ..http.problems import describe
from ..peer import user_of
from ..spec_document import parse

#: Bytes of a body. It is read before it is known who sends it.
_MOST_BYTES: Final = 8 << 10

router = APIRouter(tags=["service"])

_BODY = request_body.described(["SignIn"], {"a token": {"token": "…"}})


@router.post(
    SESSION_PATH.removeprefix("/v1"),
    operation_id="signIn",
    summary="Sign a browser in",
    responses=describe(
        "unauthenticated", "invalid_encoding", "invalid_syntax", "request_timeout", "spec_too_large",
        "unsupported_media_type", "invalid_request",
    ),
    openapi_extra={"requestBody": _BODY, "security": []},
)  # fmt: skip
async def sign_in(request: Request, answer: Response, context: In) -> Session:
    """Exchange the access token or a code for a session. Its cookie is not readable by scripts."""
    form = request_body.format_of(request)
    wanted = request_body.validated(SignIn, parse(await request_body.read(request, _MOST_BYTES), form))
    if context.authenticator is None:
        return Session(seconds=SESSION_S)
    actor = await _actor_of(wanted, request, context.authenticator)
    keys = context.authenticator.keys
    answer.set_cookie(
        keys.cookie,
        keys.session(actor),
        max_age=SESSION_S,
        path="/",
        httponly=True,
        samesite="strict",
        secure=_is_https(request),
    )
    return Session(seconds=SESSION_S)


@router.delete(
    SESSION_PATH.removeprefix("/v1"),
    operation_id="signOut",
    summary="Sign a browser out",
    openapi_extra={"security": []},
)
async def sign_out(request: Request, answer: Response, context: In) -> Session:
    """Delete the browser's cookie. A new token (`shardyard token --rotate`) ends the sessions of all browsers."""
    name = context.authenticator.keys.cookie if context.authenticator else ""
    if name in request.cookies:  # the name is derived from the token: only who has it may see it
        answer.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=_is_https(request))
    return Session(seconds=0)


@router.post("/session/code", operation_id="createSignInCode", summary="Create a sign-in code")
async def create_code(request: Request, context: In) -> SignInCode:
    """Create a code for the page's address (`#code=…`). It signs a browser of the same user in once, within ten minutes."""
    user = await _user_of(request)
    code = context.authenticator.keys.code(user) if context.authenticator else ""
    return SignInCode(code=code, seconds=CODE_S)


async def _actor_of(wanted: SignIn, request: Request, authenticator: Authenticator) -> Actor:
    if wanted.code is not None:
        actor = await authenticator.redeem(wanted.code, lambda: _user_of(request))
        if actor is None:
            raise Unauthenticated(
                "This link has been used or has expired.", field="code", remedy="Make a new one with: shardyard open"
            )
        return actor
    if wanted.token is None or not authenticator.keys.fits(wanted.token.strip()):
        raise Unauthenticated(
            "This is not the control plane's access token.", field="token", remedy="See it with: shardyard token"
        )
    return OWNER


async def _user_of(request: Request) -> int | None:
    return await asyncio.to_thread(user_of, request.scope.get("client"), request.scope.get("server"))


def _is_https(request: Request) -> bool:
    """Whether the browser used HTTPS. A proxy that ends TLS keeps the browser's `Origin` header."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
