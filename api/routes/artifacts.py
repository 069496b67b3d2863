"""Files that a job's programs logged: list them, and send one of them, whole or a range of its bytes."""

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from ...service.queries import artifacts
from ...service.schemas.artifact import LoggedArtifact, LoggedArtifacts
from ...workers.messages.artifact import CSV, OTHER, SHOWN
from ..http import problems
from ..http.byte_range import Unsatisfiable, wanted
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

#: What a program logged is never run by a browser: no guess of its type, no script, no frame, no cookies of this origin.
_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
}
_BINARY: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/jobs/{job}/artifacts",
    operation_id="listArtifacts",
    summary="List the files that a job's program logged",
    responses=describe("job_not_found", "invalid_cursor", "invalid_request"),
)
async def list_artifacts(
    job: str,
    context: In,
    prefix: Annotated[str, Query(max_length=400, description="Only files whose name begins with this text.")] = "",
    kind: Annotated[
        str | None, Query(alias="type", pattern="^(file|image|table)$", description="Only files that were logged so.")
    ] = None,
    after: Annotated[str | None, Query(max_length=420, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> LoggedArtifacts:
    """Files, images and tables that a program of the user's own logged, in order of name and step."""
    return await artifacts.page(context.store, job, prefix=prefix, kind=kind, after=after, limit=limit)


@router.get(
    "/jobs/{job}/artifacts/{name:path}",
    operation_id="downloadArtifact",
    summary="Download a file that a job's program logged",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The file.", "content": _BINARY},
        206: {"description": "The range of bytes that `Range` names.", "content": _BINARY},
        304: {"description": "The file is the one that `If-None-Match` names."},
        **describe(
            "job_not_found", "artifact_not_found", "range_not_satisfiable", "artifact_storage_failed", "invalid_request"
        ),
    },
)
async def download(
    request: Request,
    job: str,
    name: str,
    context: In,
    step: Annotated[
        int | None,
        Query(ge=0, lt=2**53, description="The step. By default the file without one, or if there is none the newest."),
    ] = None,
    asked: Annotated[
        str | None, Header(alias="Range", description="One range of bytes, such as `bytes=1000-`.")
    ] = None,
) -> Response:
    """The file's bytes. Images of types that hold no script are shown by browsers, all other files are saved. `ETag` is the SHA-256."""
    found = await artifacts.find(context.store, context.settings, job, name, step)
    one, etag = found.artifact, f'"{found.artifact.sha256}"'
    headers = _SAFE | {"ETag": etag, "Content-Disposition": _disposition(one)}
    if request.headers.get("If-None-Match") == etag:
        return Response(status_code=304, headers=headers)
    try:
        part = wanted(asked, request.headers.get("If-Range"), etag, one.bytes)
    except Unsatisfiable:
        detail = f"The file has {one.bytes:,} bytes, and the range begins after them."
        size = {"Content-Range": f"bytes */{one.bytes}"}
        return problems.response(request, "range_not_satisfiable", detail, headers=size)
    start, end = part or (0, one.bytes)
    headers["Content-Length"] = str(end - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{one.bytes}"
    known = one.media_type if one.media_type in (*SHOWN, CSV) else OTHER
    return StreamingResponse(
        await artifacts.blocks(found, start, end), 206 if part else 200, headers=headers, media_type=known
    )


def _disposition(one: LoggedArtifact) -> str:
    """Only images are shown in place. The name is that of the file alone, in ASCII and as RFC 8187 encodes it."""
    name = one.name.rpartition("/")[2]
    if one.type == "table" and not name.endswith(".csv"):
        name += ".csv"
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign in " ._-") else "_" for sign in name)
    how = "inline" if one.media_type in SHOWN else "attachment"
    return f"{how}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
