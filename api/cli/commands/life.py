"""Commands about ended jobs: retry, delete, undelete."""

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from ....service.schemas.job import Job, Jobs
from ...client import ApiError, Client
from ..exit_codes import ExitCode
from ..options import JobName, Json, Url
from ..printed_error import print_error
from ..terminal.screen import Screen, age, state

#: Deleted jobs of one request, the newest first.
_LISTED = 200
_COLUMNS = ("ID", "NAME", "STATE", "DELETED", "BY")
JobNames = Annotated[list[str], typer.Argument(metavar="JOB…", help="Jobs, each by its id or the newest of its name.")]


def retry(
    job: JobName,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Idempotency key: retrying again with the same key returns the same new job."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Submit a job that failed or was cancelled again. It continues from its newest checkpoint."""
    screen = Screen()
    with Client(url) as client:
        found = client.retry(job, idempotency_key=key)
    if json:
        screen.json(found)
        return
    screen.out.print(f"{found.id}  {found.name}  {state(found)}")
    screen.hint(f"Watch it with: shardyard watch {found.id}")


def delete(
    jobs: JobNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Delete jobs that have ended. They can be restored for a day, or as long as the server says (SHARDYARD_UNDELETE_S).

    Then their checkpoints are removed, too.
    """
    with Client(url) as client:
        found = list({job.id: job for job in map(client.job, jobs)}.values())
        if not yes:
            _confirm(found)
        deleted: list[Job] = []
        try:
            _each([job.id for job in found], client.delete, deleted, json)
        finally:
            hint = f"Restore with: shardyard undelete {' '.join(job.id for job in deleted)}" if deleted else None
            _print(deleted, json, "deleted", hint)
    if len(deleted) < len(found):
        raise typer.Exit(ExitCode.ERROR)


def undelete(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB…]", help="Deleted jobs, by id or name. None: list them.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Restore deleted jobs, as they were, or list those that can be restored."""
    with Client(url) as client:
        if not jobs:
            if json:
                _print(_all_deleted(client), json, "deleted")
            else:
                print_deleted(Screen(), client.jobs(deleted=True, limit=_LISTED))
            return
        found = list(dict.fromkeys(_deleted_id(client, job) for job in jobs))
        restored: list[Job] = []
        try:
            _each(found, client.undelete, restored, json)
        finally:
            _print(restored, json, "restored")
    if len(restored) < len(found):
        raise typer.Exit(ExitCode.ERROR)


def _all_deleted(client: Client) -> list[Job]:
    page = client.jobs(deleted=True, limit=_LISTED)
    found = [*page.items]
    while page.next:
        page = client.jobs(deleted=True, limit=_LISTED, cursor=page.next)
        found += page.items
    return found


def _deleted_id(client: Client, job: str) -> str:
    """The id of the newest deleted job of this name. What is none stays: it is an id, or is refused."""
    newest = client.jobs(deleted=True, name=job, limit=1).items
    return newest[0].id if newest else job


def print_deleted(screen: Screen, page: Jobs, more: Sequence[str] = ("shardyard", "list")) -> None:
    """The deleted jobs, and how they are restored. `more`: the command that lists such jobs."""
    lines = [(job.id, job.name, state(job), age(job.deleted_at), job.deleted_by or "") for job in page.items]
    screen.table(_COLUMNS, lines)
    screen.hint("Restore one with: shardyard undelete JOB" if lines else "No deleted job can be restored.")
    if page.next:
        screen.hint(f"More with: {shlex.join([*more, '--deleted', '--cursor', page.next])}")


def _confirm(jobs: Sequence[Job]) -> None:
    """Ask on the terminal. Without one, or without a yes, this command ends."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to ask for confirmation. Give --yes.")
    screen = Screen()
    for job in jobs:
        screen.err.print(f"{job.id}  {job.name}  {state(job)}")
    typer.confirm(f"Delete {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}?", abort=True, err=True)


def _each(names: Sequence[str], act: Callable[[str], Job], done: list[Job], json: bool) -> None:
    """Add to `done` the jobs for which the request succeeded. A refusal is printed, and the others go on. Raises ApiError."""
    for name in names:
        try:
            done.append(act(name))
        except ApiError as error:
            if error.status is None or error.status >= 500:
                raise
            print_error(error.code, error.detail, error.errors, as_json=json)


def _print(jobs: Sequence[Job], json: bool, word: str, hint: str | None = None) -> None:
    screen = Screen()
    if json:
        screen.json([job.model_dump(mode="json") for job in jobs])
        return
    for job in jobs:
        screen.out.print(f"{job.id}  {job.name}  {word}")
    if hint is not None:
        screen.hint(hint)
