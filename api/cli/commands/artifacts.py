"""`shardyard artifacts`: the files that a job's program logged, listed and downloaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ....service.schemas.artifact import LoggedArtifact
from ...client import Client
from ...client.artifact_file import local_path
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, day, size

#: Files in a request.
_PAGE = 1000


def artifacts(
    job: JobName,
    prefix: Annotated[str, typer.Option("--prefix", help="Only files whose name begins with this text.")] = "",
    download: Annotated[
        str | None,
        typer.Option(
            "--download",
            metavar="NAME",
            help="Download the file of this name: the one without a step, else the newest.",
        ),
    ] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Of --download: the file of this step.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Download all listed files.")] = False,
    to: Annotated[Path, typer.Option("--to", help="Folder for the downloaded files.")] = Path(),
    url: Url = None,
    json: Json = False,
) -> None:
    """List the files, images and tables that a job's program logged, or download them."""
    if download is not None and (everything or prefix):
        raise typer.BadParameter("--download takes one file by its name; --all takes those that --prefix selects.")
    if step is not None and download is None:
        raise typer.BadParameter("--step is of the file that --download names.")
    screen = Screen()
    with Client(url) as client:
        if download is None and not everything:
            _list(screen, _all(client, job, prefix), as_json=json)
            return
        wanted = _all(client, job, prefix) if download is None else _named(client, job, download, step)
        placed: list[dict[str, Any]] = []
        for one in wanted:
            place = local_path(to, one)
            if any(str(place) == file["path"] for file in placed):  # such as of an image `x`, and a file `x.png`
                place = place.with_name(f"{place.stem}.{one.sha256[:8]}{place.suffix}")
            client.download_artifact(job, one.name, place, step=one.step)
            placed.append({"name": one.name, "step": one.step, "path": str(place)})
        if download is not None and not placed:
            client.download_artifact(job, download, to / "none", step=step)  # which the server refuses with the reason
    if json:
        screen.json(placed)
        return
    for file in placed:
        screen.line(str(file["path"]))


def _all(client: Client, job: str, prefix: str) -> Iterator[LoggedArtifact]:
    after: str | None = None
    while True:
        page = client.artifacts(job, prefix=prefix, after=after, limit=_PAGE)
        yield from page.items
        after = page.next
        if after is None:
            return


def _named(client: Client, job: str, name: str, step: int | None) -> list[LoggedArtifact]:
    """The file of a name at a step, if there is one. None: the one without a step, else that of the newest, as the service chooses."""
    found = {one.step: one for one in _all(client, job, name) if one.name == name}
    if step is None and None not in found:
        step = max((each for each in found if each is not None), default=None)
    return [found[step]] if step in found else []


def _list(screen: Screen, found: Iterator[LoggedArtifact], *, as_json: bool) -> None:
    if as_json:
        screen.json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        (
            escape(one.name),
            "" if one.step is None else f"{one.step:,}",
            one.type,
            size(one.bytes) or "",
            str(one.rank),
            day(one.at),
        )
        for one in found
    ]
    screen.table(("NAME", "STEP", "TYPE", "SIZE", "RANK", "AT"), rows)
    if not rows:
        screen.hint("A program logs files with shardyard.log_artifact, log_image and log_table.")
