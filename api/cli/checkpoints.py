"""`shardyard checkpoints`: which a job has, and whether they are whole. Storage is read from here, where it can be reached."""

from typing import Annotated

import typer

from ...strategies.layout import Refusal
from ...workers.checkpoint.address import is_bucket
from ...workers.checkpoint.errors import CheckpointError, Damaged
from ...workers.checkpoint.manifest import MANIFEST, read
from ...workers.checkpoint.storage import Folder, folder_at
from ..client import Client
from ..models import Checkpoint
from .exits import ExitCode
from .options import JobName, Json, Url
from .screen import Screen, clock, seconds, size

_COLOURS = {"whole": "green", "damaged": "red", "removed": "dim"}


def checkpoints(
    job: JobName,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file with its checksum; exits with 1 where one is damaged.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 20,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Go on after a page.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List a job's checkpoints, newest first, and say what has become of them."""
    screen = Screen()
    with Client(url) as client:
        page = client.checkpoints(job, before=before, limit=limit)
    told = [(one, *fate(one.path, verify=verify)) for one in page.items]
    if json:
        items = [{**one.model_dump(mode="json"), "fate": what, "message": why} for one, what, why in told]
        screen.json({"items": items, "next": page.next})
    else:
        columns = ("STEP", "TOLD", "SIZE", "TOOK", "TRAINING HELD", "IS", "PATH")
        screen.table(columns, [_row(one, what) for one, what, _ in told])
        _explain(screen, job, [why for _, _, why in told if why], page.next)
    if any(what == "damaged" for _, what, _ in told):
        raise typer.Exit(ExitCode.ERROR)


def fate(path: str, *, verify: bool) -> tuple[str, str | None]:
    """What has become of a checkpoint, and why that is said. `unseen`: from here its storage cannot be read.

    Without `verify` a bucket is not asked, and of a folder only whether it is there.
    """
    if is_bucket(path) and not verify:
        return "unseen", None
    try:
        return _fate(folder_at(path), verify)
    except Damaged as error:
        return "damaged", str(error)
    except (CheckpointError, Refusal, OSError) as error:
        return "unseen", str(error)


def _fate(folder: Folder, verify: bool) -> tuple[str, str | None]:
    shelf = folder_at(folder.where.rpartition("/")[0])
    if not folder.has(MANIFEST):
        return ("removed", None) if shelf.folders() else ("unseen", None)
    if not verify:
        return "there", None
    from ...workers.checkpoint.verify import verify as compare  # needs torch

    compare(folder, read(folder))
    return "whole", None


def _row(one: Checkpoint, what: str) -> tuple[str, ...]:
    colour = _COLOURS.get(what)
    shown = f"[{colour}]{what}[/]" if colour else what
    return (
        str(one.step),
        clock(one.ts),
        size(one.bytes) or "",
        seconds(one.seconds) or "",
        seconds(one.held_s) or "",
        shown,
        one.path,
    )


def _explain(screen: Screen, job: str, reasons: list[str], following: int | None) -> None:
    for reason in reasons:
        screen.say(reason)
    if following:
        screen.hint(f"More with: shardyard checkpoints {job} --before {following}")
