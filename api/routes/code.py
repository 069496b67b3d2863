"""Archives of code: upload in parts, read."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from ...service.jobs import code_archives
from ...service.schemas.code import CodeArchive, CodeManifest
from ...workers.code_archive import MOST_STORED
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["code"])

_DIGEST = Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the archive's manifest.")
_MANIFEST = request_body.described(
    ["CodeManifest"], {"manifest": {"bytes": 10240, "files": 1, "parts": ["0" * 64], "commit": None, "diff": None}}
)
_PART = {
    "required": True,
    "description": "The part's bytes, deflated by zlib.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_READING = ("request_timeout", "spec_too_large", "unsupported_media_type", "invalid_request")


@router.post(
    "/code",
    operation_id="beginCodeUpload",
    summary="Begin or continue an upload of code",
    responses=describe("invalid_encoding", "invalid_syntax", "invalid_code", "code_storage_failed", *_READING),
    openapi_extra={"requestBody": _MANIFEST},
)
async def begin(request: Request, context: In, actor: Actor) -> CodeArchive:
    """Announce an archive by its manifest. The answer has its id, and the numbers of the parts that are missing. Repeating is harmless."""
    form = request_body.format_of(request)
    manifest = request_body.validated(CodeManifest, parse(await request_body.read(request), form))
    return await code_archives.begin(context.store, context.code, manifest, actor)


@router.put(
    "/code/{archive}/parts/{number}",
    operation_id="uploadCodePart",
    summary="Upload a part of an archive of code",
    responses=describe("code_not_found", "invalid_code", "code_storage_failed", *_READING),
    openapi_extra={"requestBody": _PART},
)
async def put_part(
    archive: Annotated[str, _DIGEST], number: Annotated[int, Path(ge=0, lt=2**31)], request: Request, context: In
) -> CodeArchive:
    """Store a part, in any order. Repeating is harmless. The last one completes the archive, if its files are accepted."""
    request_body.check_octets(request)
    content = await request_body.read(request, MOST_STORED)
    return await code_archives.put_part(context.store, context.code, archive, number, content)


@router.get(
    "/code/{archive}",
    operation_id="getCode",
    summary="Read about an archive of code",
    responses=describe("code_not_found", "invalid_request"),
)
async def get(archive: Annotated[str, _DIGEST], context: In) -> CodeArchive:
    """Size, commit and uncommitted changes of an archive."""
    return await code_archives.get(context.store, archive)
