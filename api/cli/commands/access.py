"""Access: `open` signs a browser in, `token` prints or replaces the access token."""

import contextlib
import webbrowser
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from ....service.data_folder import make_private
from ....service.errors import ShardyardError
from ....service.settings import Settings
from ...access_token import given, sign_in_link, token_file
from ...client import Client
from ..job_names import job_names
from ..options import Url
from ..terminal.screen import Screen

#: Browsers of a terminal, which would take this one over.
_ON_A_TERMINAL = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})


def open_(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Open this job's page.", autocompletion=job_names)
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link without opening a browser.")] = False,
    url: Url = None,
) -> None:
    """Open the dashboard in your browser, signed in. The printed link signs in once, within ten minutes."""
    screen = Screen()
    with Client(url) as client:
        page = f"/jobs/{quote(client.job(job).id, safe='')}" if job else "/"
        link = sign_in_link(client.url, client.sign_in_code().code, page)
    screen.out.print(link, markup=False)
    if not no_browser and not _open(link):
        screen.hint("No browser was opened: follow the link.")


def token(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the token first; the old one and all browser sessions end.")
    ] = False,
) -> None:
    """Print the access token: SHARDYARD_TOKEN or SHARDYARD_TOKEN_PATH if set, else the data folder's."""
    settings = Settings()
    file = token_file(settings)
    if rotate:
        if settings.token is not None or not file.own:
            name = "SHARDYARD_TOKEN" if settings.token is not None else "SHARDYARD_TOKEN_PATH"
            raise ShardyardError(
                f"The token is given by {name}.", remedy="Replace it there: a server reads a changed file again."
            )
        make_private(settings.data_dir)
        file.replace()
    print(given(settings) or file.read())


def _open(link: str) -> bool:
    """Open a browser window; returns whether one was started. Its command line is public, so the code works once."""
    if urlsplit(link).hostname not in {"127.0.0.1", "localhost", "::1"}:
        return False
    with contextlib.suppress(webbrowser.Error):
        browser = webbrowser.get()
        return getattr(browser, "name", "") not in _ON_A_TERMINAL and browser.open(link)
    return False
