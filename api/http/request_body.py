"""Reads a request's body within bounds of size and time, and only in formats that other sites' pages cannot send.

(A browser sends `text/plain` and forms to other sites without asking; for `application/json` and `application/yaml` it asks first.)
"""

import asyncio
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import Any, Final, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from ...workers.spec import MAX_SPEC_BYTES
from ..errors import RequestTimeout, SpecTooLarge, UnsupportedMediaType
from ..spec_document import Format
from .validation_errors import as_written

Body = TypeVar("Body", bound=BaseModel)

#: Seconds in which a whole body must arrive, and bytes for which it gets a second more each: a part of code comes on slow lines, too.
BODY_S = 30.0
LEAST_BYTES: Final = 32 << 10
#: At most this number of bytes of a too large body is read and discarded, so that the sender receives the refusal and not a broken pipe.
_DRAIN_BYTES = 32 << 20

_FORMATS: Final[dict[str, Format]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
}


def described(schemas: Sequence[str], examples: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAPI's `requestBody` of a route that reads its body itself: one of these schemas.

    Only the text mentions YAML: client generators drop, or break, an operation with a body of a type that they do not support.
    """
    references = [{"$ref": f"#/components/schemas/{name}"} for name in schemas]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    content = {"schema": schema, "examples": {name: {"value": value} for name, value in examples.items()}}
    text = "JSON, or the same as YAML with `Content-Type: application/yaml`."
    return {"required": True, "description": text, "content": {"application/json": content}}


def format_of(request: Request) -> Format:
    """The format of the body. Raises `UnsupportedMediaType`."""
    remedy = "Send Content-Type: application/yaml or application/json, uncompressed."
    given = request.headers.get("content-type", "")
    media_type, charset = _content_type(given)
    form = _FORMATS.get(media_type)
    if form is None or charset not in ("", "utf-8", "utf8"):
        message = f"{given[:80]!r} is not accepted." if given else "The body has no Content-Type."
        raise UnsupportedMediaType(message, field="Content-Type", remedy=remedy)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not accepted.", field="Content-Encoding", remedy=remedy)
    return form


def check_octets(request: Request) -> None:
    """Raise `UnsupportedMediaType` unless the body is `application/octet-stream`."""
    given = request.headers.get("content-type", "")
    is_octets = _content_type(given)[0] == "application/octet-stream"
    if not is_octets or request.headers.get("content-encoding", "identity").lower() != "identity":
        remedy = "Send Content-Type: application/octet-stream, without Content-Encoding."
        raise UnsupportedMediaType(f"{given[:80]!r} is not accepted.", field="Content-Type", remedy=remedy)


def _content_type(given: str) -> tuple[str, str]:
    """The media type and the charset of a Content-Type, in lower case: `text/plain` for what is none, and an empty charset for none."""
    header = Message()
    header["Content-Type"] = given
    return header.get_content_type(), str(header.get_param("charset", "")).lower()


async def read(request: Request, most: int = MAX_SPEC_BYTES, *, remedy: str = "Send a smaller body.") -> bytes:
    """The whole body, of at most `most` bytes. Raises `SpecTooLarge` with `remedy`, `RequestTimeout`."""
    try:
        async with asyncio.timeout(BODY_S) as limit:
            return await _read(request, most, limit, remedy)
    except TimeoutError:
        message = (
            f"The body did not arrive within {BODY_S:g} s, or came slower than {LEAST_BYTES >> 10} KiB per second."
        )
        raise RequestTimeout(message, remedy="Send it again.") from None


def validated(kind: type[Body], document: object, *, strict: bool | None = None) -> Body:
    """The parsed body as a value of class `kind`. Raises `RequestValidationError`, which never contains the input.

    `strict`: `true` is not a number, and neither is `"5"`, as in a job's spec; None: as the class has it.
    """
    try:
        return kind.model_validate(document, strict=strict)
    except ValidationError as error:
        found = as_written(error, document)
        raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]) from None


async def _read(request: Request, most: int, limit: asyncio.Timeout, remedy: str) -> bytes:
    chunks: list[bytes] = []
    size, until = 0, limit.when()
    async for chunk in request.stream():
        size += len(chunk)
        if until is not None:
            limit.reschedule(until + min(size, most) / LEAST_BYTES)
        if size <= most:
            chunks.append(chunk)
        elif size > _DRAIN_BYTES:
            break
        else:
            chunks.clear()
    if size > most:
        raise SpecTooLarge(most, remedy)
    return b"".join(chunks)
