"""The JSON Schema of a job spec, the example specs of this version, and the server's features."""

from functools import cache
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from ...service.schemas.server import Server, Template, Templates
from ...service.spec import JobKind
from ...version import __version__
from ..http.dependencies import In
from ..http.problems import describe
from ..http.validation_errors import job_schema

router = APIRouter(tags=["service"])

EXAMPLES = Path(__file__).parents[2] / "examples"
#: The example that is listed first.
_FIRST = "quickstart"


class SchemaResponse(JSONResponse):
    media_type = "application/schema+json"


@router.get(
    "/schema/job",
    operation_id="getJobSchema",
    summary="JSON Schema of a job spec",
    response_class=SchemaResponse,
    responses=describe("invalid_request"),
)
async def schema(
    kind: Annotated[
        JobKind, Query(description="`train`: a training job; `command`: a program of the user's own.")
    ] = "train",
) -> SchemaResponse:
    """JSON Schema (2020-12) of the body of `POST /v1/jobs`."""
    return SchemaResponse(job_schema(kind))


@router.get("/server", operation_id="getServer", summary="Read version and permitted features")
async def server(context: In) -> Server:
    """Version of the control plane, and features that its operator has enabled."""
    settings, asks = context.settings, context.authenticator is not None
    return Server(
        version=__version__,
        fault_injection=settings.fault_injection,
        authentication=asks,
        terminals=settings.exec and asks,
        undelete_s=settings.undelete_s if isfinite(settings.undelete_s) else None,
    )


@router.get("/templates", operation_id="listTemplates", summary="List example specs")
async def templates() -> Templates:
    """The example specs of this version, the simplest first."""
    return _templates()


@cache
def _templates() -> Templates:
    files = sorted(EXAMPLES.glob("*.yaml"), key=lambda path: (path.stem != _FIRST, path.stem))
    return Templates(items=[_template(path) for path in files])


def _template(path: Path) -> Template:
    """A template of an example. Its description is the comment at the top of the file, without the indented commands."""
    text = path.read_text(encoding="utf-8")
    top = takewhile(lambda line: line.startswith("#"), text.splitlines())
    about = " ".join(line.removeprefix("# ") for line in top if not line.startswith("#  "))
    return Template(name=path.stem, about=about, text=text)
