"""`shardyard code`: what was uploaded for a job."""

from typing import Annotated

import typer

from ....service.errors import ShardyardError
from ....service.program_spec import Code
from ....service.schemas.code import CodeArchive
from ...client import Client
from ...errors import JobWithoutCode
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, day, number, size


def code(
    job: JobName,
    diff: Annotated[bool, typer.Option("--diff", help="Print the changes that were not committed.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the code that was uploaded for a job: its origin, commit, size and uncommitted changes."""
    screen = Screen()
    with Client(url) as client:
        found = client.job(job)
        shipped = found.spec.get("code")
        if not shipped:
            raise _without(found.id)
        archive = client.code(shipped["archive"])
    if json:
        screen.json(archive)
    elif diff:
        screen.content(archive.diff or "")
    else:
        screen.facts(
            f"code of {found.id}",
            [
                ("from", Code.model_validate(shipped).source),
                ("commit", commit_of(archive)),
                ("files", f"{number(archive.files)}, {size(archive.bytes)}"),
                ("archive", archive.id),
                ("uploaded", f"{day(archive.created_at.timestamp())} by {archive.actor}"),
            ],
        )
        if archive.diff:
            screen.hint(f"See the changes with: shardyard code {found.id} --diff")


def commit_of(archive: CodeArchive) -> str | None:
    """The commit, and the number of files with changes since then; None outside a git repository."""
    changed = archive.diff.count("\ndiff --git ") + 1 if archive.diff else 0
    also = f", and changes of {changed} file{'s' * (changed > 1)}" if changed else ""
    return f"{archive.commit}{also}" if archive.commit else None


def _without(job: str) -> ShardyardError:
    remedy = "Only jobs whose spec has code upload it."
    return JobWithoutCode(f"No code was uploaded for {job}.", field="job", remedy=remedy)
