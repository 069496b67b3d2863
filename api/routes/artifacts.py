"""Files that a job's programs logged: list them, and send one of them, whole or a range of its bytes."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from ...service.queries import artifacts
from ...service.schemas.artifact import LoggedArtifact, LoggedArtifacts
from ...workers.messages.artifact import CSV, OTHER, SHOWN
from ..http import file_download
from ..http.dependencies import In
from ..http.file_download import Range
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])


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


@dataclass(frozen=True)
class _Which:
    """Which of the files of one name is sent."""

    step: Annotated[
        int | None,
        Query(ge=0, lt=2**53, description="The step. By default the file without one, or if there is none the newest."),
    ] = None
    sha256: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{64}$", description="Only a file with this SHA-256: another one is not found."),
    ] = None


@router.get(
    "/jobs/{job}/artifacts/{name:path}",
    operation_id="downloadArtifact",
    summary="Download a file that a job's program logged",
    response_class=StreamingResponse,
    responses={
        **file_download.RESPONSES,
        **describe(
            "job_not_found", "artifact_not_found", "range_not_satisfiable", "artifact_storage_failed", "invalid_request"
        ),
    },
)
async def download(
    request: Request, job: str, name: str, context: In, which: Annotated[_Which, Depends()], asked: Range = None
) -> Response:
    """The file's bytes. Images of types that hold no script are shown by browsers, all other files are saved. `ETag` is the SHA-256."""
    found = await artifacts.find(context.store, context.settings, job, name, which.step, which.sha256)
    one = found.artifact
    known = one.media_type if one.media_type in (*SHOWN, CSV) else OTHER
    shown = one.media_type in SHOWN
    return await file_download.answer(request, found.file, _name(one), known, asked=asked, shown=shown)


def _name(one: LoggedArtifact) -> str:
    """That of the file alone."""
    name = one.name.rpartition("/")[2]
    return f"{name}.csv" if one.type == "table" and not name.endswith(".csv") else name
