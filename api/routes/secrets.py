"""Secrets: stored, listed and removed. No answer has a value."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from ...service import secrets
from ...service.schemas.secret import Secret, Secrets, SecretValue
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["secrets"])

_Name = Annotated[
    str,
    Path(
        pattern="^[A-Za-z_][A-Za-z0-9_]*$",
        max_length=255,
        description="Letters, digits and underscores, as a variable's name.",
    ),
]
_VALUE = request_body.described(["SecretValue"], {"token": {"value": "the secret text"}})


@router.get("/secrets", operation_id="listSecrets", summary="List the secrets")
async def list_secrets(context: In) -> Secrets:
    """Names, and who set them when, in alphabetical order."""
    return Secrets(items=await secrets.listed(context.store))


@router.put(
    "/secrets/{name}",
    operation_id="setSecret",
    summary="Store a secret",
    responses=describe(
        *("too_many_secrets", "secrets_key_unusable", "invalid_encoding", "invalid_syntax", "request_timeout"),
        *("spec_too_large", "unsupported_media_type", "invalid_request"),
    ),
    openapi_extra={"requestBody": _VALUE},
)
async def put(name: _Name, request: Request, context: In, actor: Actor) -> Secret:
    """Store a secret, encrypted, in place of the one of this name. Attempts that start later get the new value."""
    form = request_body.format_of(request)
    given = request_body.validated(SecretValue, parse(await request_body.read(request), form))
    return await secrets.put(context.store, context.settings, name, given.value, actor)


@router.delete(
    "/secrets/{name}",
    operation_id="removeSecret",
    summary="Remove a secret",
    responses=describe("invalid_request"),
)
async def remove(name: _Name, context: In) -> Secrets:
    """Remove a secret, and return the others. Ranks that have it keep it; a job that names it fails when it starts.

    Harmless if there is none of this name.
    """
    return Secrets(items=await secrets.remove(context.store, name))
