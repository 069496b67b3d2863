"""Serves the single-page dashboard: index.html for every route, immutable assets, and the API's documentation."""

from fastapi import APIRouter
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from ..http import dashboard_files
from ..http.dashboard_files import PAGE_HEADERS

router = APIRouter(include_in_schema=False)

#: Swagger UI's style sheet draws its arrows itself.
_DOCS_HEADERS = PAGE_HEADERS | {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
}
_ASSET_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@router.get("/")
@router.get("/new")
@router.get("/cluster")
@router.get("/cluster/{tab}")
@router.get("/compare")
@router.get("/secrets")
@router.get("/models")
@router.get("/models/{rest:path}")
@router.get("/sweeps")
@router.get("/sweeps/{rest:path}")
@router.get("/jobs")
@router.get("/jobs/{rest:path}")
async def page() -> Response:
    return _page("index.html", PAGE_HEADERS)


@router.get("/docs")
async def docs() -> Response:
    """The API's documentation: Swagger UI over `/openapi.json`."""
    return _page("docs/index.html", _DOCS_HEADERS)


@router.get("/docs/{name}")
async def docs_file(name: str) -> Response:
    return _file(f"docs/{name}", {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})


@router.get("/assets/{name:path}")
async def asset(name: str) -> Response:
    return _file(f"assets/{name}", _ASSET_HEADERS)


@router.get("/favicon.svg")
async def favicon() -> Response:
    return _file("favicon.svg", {"Cache-Control": "no-cache"})


def _page(name: str, headers: dict[str, str]) -> Response:
    path = dashboard_files.DIST / name
    if not path.is_file():
        message = "The dashboard is not built: run `make dashboard`, then load this page again.\nThe API is at /openapi.json.\n"
        return PlainTextResponse(message)
    return FileResponse(path, headers=headers)


def _file(name: str, headers: dict[str, str]) -> Response:
    try:
        path = (dashboard_files.DIST / name).resolve()
        there = path.is_relative_to(dashboard_files.DIST.resolve()) and path.is_file()
    except (OSError, ValueError):  # a name too long; a null character
        there = False
    if not there:
        raise HTTPException(404)
    return FileResponse(path, headers=headers)
