"""`shardyard artifacts`: the files that a job's program logged, listed and downloaded."""

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from ....service.schemas.artifact import LoggedArtifact
from ....service.schemas.problem import FieldError
from ...client import ApiError, Client
from ...client.artifact_file import local_path
from ..exit_codes import ExitCode
from ..options import JobName, Json, Url
from ..printed_error import print_error
from ..terminal.screen import Screen, day, size

#: Files in a request.
_PAGE = 1000
#: Codes of errors that concern one file: it was logged again or removed meanwhile, or arrived damaged.
_OF_ONE_FILE: Final = frozenset({"artifact_not_found", "checkpoint_changed", "artifact_damaged"})
#: Errors of a file system that cannot have a file of this name in this folder.
_OF_ITS_NAME: Final = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL})


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
        found = client.job(job).id  # else files of a newer job of the name would come between
        if download is None and not everything:
            _list(screen, _all(client, found, prefix), as_json=json)
            return
        wanted = list(_all(client, found, prefix) if download is None else _named(client, found, download, step))
        if download is not None and not wanted:
            client.download_artifact(found, download, to / "none", step=step)  # the server refuses it with the reason
        placed: list[dict[str, Any]] = []
        try:
            _place(client, found, wanted, to, placed, as_json=json)
        finally:
            _print(screen, placed, as_json=json)
    if len(placed) < len(wanted):
        raise typer.Exit(ExitCode.ERROR)


def _place(
    client: Client, job: str, wanted: Iterable[LoggedArtifact], to: Path, placed: list[dict[str, Any]], *, as_json: bool
) -> None:
    """Download files, and add those that have arrived to `placed`. One that cannot be placed is reported. Raises ApiError, OSError."""
    for one in wanted:
        place = local_path(to, one)
        if any(str(place) == file["path"] for file in placed):  # such as of an image `x`, and a file `x.png`
            place = place.with_name(f"{place.stem}.{one.sha256[:8]}{place.suffix}")
        try:
            path = client.download_artifact(job, one.name, place, step=one.step, digest=one.sha256)
        except ApiError as error:
            if error.code not in _OF_ONE_FILE:
                raise
            print_error(error.code, f"{one.name}: {error.detail}", error.errors, as_json=as_json)
        except OSError as error:
            if error.errno not in _OF_ITS_NAME:
                raise
            _print_refused(job, one, f"{one.name} cannot be placed at {place}: {error.strerror}.", as_json=as_json)
        else:
            placed.append({"name": one.name, "step": one.step, "path": str(path)})


def _print_refused(job: str, one: LoggedArtifact, message: str, *, as_json: bool) -> None:
    step = "" if one.step is None else f" --step {one.step}"
    command = f"shardyard artifacts {job} --download {quote(one.name)}{step} --to DIR"
    remedy = (
        f"Download it into another folder: {command}. In Python, client.download_artifact takes another name for it."
    )
    print_error("os_error", message, [FieldError(field="--to", message=message, remedy=remedy)], as_json=as_json)


def _print(screen: Screen, placed: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
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
