"""Answers a request for a stored file: whole, or one range of its bytes (RFC 9110, 14). Its tag is its SHA-256.

What users' programs wrote is never run by a browser: no guess of its type, no script, no frame, no cookies of this origin.
"""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Header, Request
from fastapi.responses import Response, StreamingResponse

from ...service.queries import stored_file
from ...service.queries.stored_file import StoredFile
from . import problems
from .byte_range import Unsatisfiable, requested_range
from .dependencies import Context

_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
}
_BINARY: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

Range = Annotated[str | None, Header(alias="Range", description="One range of bytes, such as `bytes=1000-`.")]
#: OpenAPI `responses` of a download.
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The file.", "content": _BINARY},
    206: {"description": "The range of bytes that `Range` names.", "content": _BINARY},
    304: {"description": "The file is the one that `If-None-Match` names."},
}


async def answer(
    request: Request, file: StoredFile, name: str, media_type: str, *, asked: str | None, shown: bool = False
) -> Response:
    """The file's bytes (`asked`: a range of them), saved by browsers as `name`; if `shown`, displayed. Raises `file.failed`."""
    etag = f'"{file.sha256}"'
    headers = _SAFE | {"ETag": etag, "Content-Disposition": _disposition(name, "inline" if shown else "attachment")}
    if _names(request.headers.getlist("If-None-Match"), etag):
        return Response(status_code=304, headers=headers)
    try:
        part = requested_range(asked, request.headers.get("If-Range"), etag, file.bytes)
    except Unsatisfiable:
        detail = f"The file has {file.bytes:,} bytes, and the range begins after them."
        size = {"Content-Range": f"bytes */{file.bytes}"}
        return problems.response(request, "range_not_satisfiable", detail, headers=size)
    start, end = part or (0, file.bytes)
    headers["Content-Length"] = str(end - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.bytes}"
    context: Context = request.app.state.context
    content = await stored_file.blocks(context.reads, file, start, end)
    return StreamingResponse(content, 206 if part else 200, headers=headers, media_type=media_type)


def _names(headers: list[str], etag: str) -> bool:
    """Whether `If-None-Match` names the tag, weak or not: a proxy that compresses makes it weak (RFC 9110, 13.1.2)."""
    named = {tag.strip().removeprefix("W/") for header in headers for tag in header.split(",")}
    return not named.isdisjoint({etag, "*"})


def _disposition(name: str, how: str) -> str:
    """The name in ASCII, and as RFC 8187 encodes it."""
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in " ._-") else "_" for sign in name)
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
