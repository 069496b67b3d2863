"""Where the built dashboard lies, and its page for unknown paths."""

from pathlib import Path

from fastapi import Request
from fastapi.responses import FileResponse, Response

DIST = Path(__file__).parent.parent / "dashboard" / "dist"

PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; style-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
#: Paths below these are never pages of the dashboard.
_NO_PAGES = ("/v1/", "/assets/", "/docs/")


def not_found(request: Request) -> Response | None:
    """The page for an unknown path if a browser requests a page; None for other clients."""
    path, page = request.url.path, DIST / "index.html"
    asks_for_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if not asks_for_page or path.startswith(_NO_PAGES) or not page.is_file():
        return None
    return FileResponse(page, 404, headers=PAGE_HEADERS)
