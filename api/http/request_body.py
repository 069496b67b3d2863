"""A request's body is read in bounds of size and time, and only in formats that other sites' pages cannot send.

(A browser sends `text/plain` and forms across sites unasked; for `application/json` and `application/yaml` it asks.)
"""

import asyncio
from typing import Any, Final, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from ...workers.spec import MAX_SPEC_BYTES
from ..errors import RequestTimeout, SpecTooLarge, UnsupportedMediaType
from ..spec_document import Format

Wanted = TypeVar("Wanted", bound=BaseModel)

#: Seconds for a whole body to arrive.
BODY_S = 30.0
#: So much of a too large body is read and thrown away, for the sender to hear the refusal instead of a broken pipe.
_DRAIN_BYTES = 32 << 20

_FORMATS: Final[dict[str, Format]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
}


def described(schema: str, name: str, example: Any) -> dict[str, Any]:
    """OpenAPI's `requestBody` of a route that reads its body itself.

    YAML stands in the text alone: generators of clients drop, or spoil, an operation with a body of a type that they do not know.
    """
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"}, "examples": {name: {"value": example}}}
    text = "JSON, or the same as YAML with `Content-Type: application/yaml`."
    return {"required": True, "description": text, "content": {"application/json": content}}


def format_of(request: Request) -> Format:
    """How the body is written. Raises `UnsupportedMediaType`."""
    remedy = "Send Content-Type: application/yaml or application/json, uncompressed."
    given = request.headers.get("content-type", "")
    media_type, _, parameters = given.partition(";")
    form = _FORMATS.get(media_type.strip().lower())
    charset = parameters.lower().partition("charset=")[2].strip(" \"'")
    if form is None or charset not in ("", "utf-8", "utf8"):
        told = f"{given[:80]!r} is not accepted." if given else "The body has no Content-Type."
        raise UnsupportedMediaType(told, field="Content-Type", remedy=remedy)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not accepted.", field="Content-Encoding", remedy=remedy)
    return form


async def read(request: Request) -> bytes:
    """The whole body. Raises `SpecTooLarge`, `RequestTimeout`."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(request)
    except TimeoutError:
        raise RequestTimeout(f"The body did not arrive within {BODY_S:g} s.", remedy="Send it again.") from None


def validated(kind: type[Wanted], document: object) -> Wanted:
    """What a parsed body of an API's own kind holds. Raises `RequestValidationError`, which never shows what was given."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]) from None


async def _read(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_SPEC_BYTES:
            chunks.append(chunk)
        elif size > _DRAIN_BYTES:
            break
        else:
            chunks.clear()
    if size > MAX_SPEC_BYTES:
        raise SpecTooLarge()
    return b"".join(chunks)
