"""`shardyard checkpoints`: lists, downloads and pins a job's checkpoints, and verifies them from here or on the cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from ....service.schemas.checkpoint import Checkpoint
from ....service.schemas.operation import Operation
from ....service.schemas.problem import FieldError
from ....workers.checkpoint.inspect import Inspection, inspect_checkpoint
from ....workers.storage.uri import is_bucket
from ...client import Client
from ...client.transport import ApiError
from ..exit_codes import ExitCode
from ..job_names import job_id
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, day, seconds, size
from .models import checkpoint_of

#: Fewer than may wait of one job.
_AT_ONCE: Final = 10

_COLUMNS = ("STEP", "REPORTED", "SIZE", "TOOK", "TRAINING PAUSED", "STATE", "PATH")
_COLOURS = {"valid": "green", "corrupt": "red", "deleted": "dim"}


def checkpoints(  # noqa: PLR0913, PLR0917 - an option each
    job: JobName,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare those listed with their checksums; exit with 1 if one is corrupt.")
    ] = False,
    on_cluster: Annotated[
        bool,
        typer.Option("--on-cluster", help="Verify on the cluster, for storage that cannot be read from here."),
    ] = False,
    download: Annotated[
        int | None,
        typer.Option("--download", min=0, help="Download the checkpoint of this step; continues what broke off."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="With --download: the folder for its files; by default step-NNNNNNNN.")
    ] = None,
    pin: Annotated[
        int | None, typer.Option("--pin", min=0, help="Keep the checkpoint of this step in any case.")
    ] = None,
    unpin: Annotated[int | None, typer.Option("--unpin", min=0, help="Let later saves remove it again.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of checkpoints.")] = 20,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Continue after the previous page.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List a job's checkpoints, newest first, with the state of each; --verify checks them again; or download or pin one."""
    screen = Screen()
    if to is not None and download is None:
        raise typer.BadParameter("--to needs --download STEP.")
    with Client(url) as client:
        found = job_id(client, job, before)
        _pin(client, found, job, {True: pin, False: unpin})
        if download is not None:
            _download(screen, client, found, download, to, as_json=json)
            return
        page = client.checkpoints(found, before=before, limit=limit)
        findings = _asked(client, found, page.items) if on_cluster else [_seen(one, verify) for one in page.items]
    rows = [(one, seen_as.verdict, seen_as.why) for one, seen_as in zip(page.items, findings, strict=True)]
    if json:
        items = [{**one.model_dump(mode="json"), "verdict": what, "message": why} for one, what, why in rows]
        screen.json({"items": items, "next": page.next})
    else:
        screen.table(_COLUMNS, [_row(one, what) for one, what, _ in rows])
        asked = f"{found}{' --on-cluster' * on_cluster}{' --verify' * verify}"
        _explain(screen, asked, [why for _, _, why in rows if why], page.next)
        if verify and not on_cluster and any(what == "unknown" for _, what, _ in rows):
            screen.hint(f"Have those verified where they can be seen: shardyard checkpoints {job} --on-cluster")
    if any(what == "corrupt" for _, what, _ in rows):
        raise typer.Exit(ExitCode.ERROR)


def _download(screen: Screen, client: Client, job: str, step: int, to: Path | None, *, as_json: bool) -> None:
    placed = client.download_checkpoint(job, step, Path(f"step-{step:08d}") if to is None else to)
    if as_json:
        screen.json([str(path) for path in placed])
        return
    for path in placed:
        screen.line(str(path))


def _pin(client: Client, job: str, named: str, wanted: dict[bool, int | None]) -> None:
    """Pin and unpin checkpoints of these steps, on the cluster. Raises ApiError, UnknownCheckpoint."""
    for pinned, step in wanted.items():
        if step is None:
            continue
        position = checkpoint_of(client, job, str(step), named).position
        ended = client.finished((client.pin_checkpoint if pinned else client.unpin_checkpoint)(job, position))
        if ended.error is not None:
            field = "--pin" if pinned else "--unpin"
            where = FieldError(field=field, message=ended.error.message, remedy=ended.error.remedy)
            raise ApiError(ended.error.code, ended.error.message, None, [where])


def seen(path: str, *, verify: bool) -> Inspection:
    """The state of a checkpoint as seen from here. Without `verify` a bucket is not read."""
    return Inspection("unknown") if is_bucket(path) and not verify else inspect_checkpoint(path, verify=verify)


def _seen(one: Checkpoint, verify: bool) -> Inspection:
    """The state as seen from here; without `verify`, the service's state unless a worse one is seen."""
    found = seen(one.path, verify=verify)
    if found.verdict == "present" or (found.verdict == "unknown" and (not verify or one.state != "present")):
        return Inspection(one.state)
    return found


def _asked(client: Client, job: str, items: Sequence[Checkpoint]) -> list[Inspection]:
    """The states that the cluster finds, several at a time. Corrupt and deleted checkpoints are not checked again."""
    present = [one for one in items if one.state == "present"]
    found: dict[int, Operation] = {}
    for at in range(0, len(present), _AT_ONCE):
        asked = {one.position: client.verify_checkpoint(job, one.position) for one in present[at : at + _AT_ONCE]}
        found |= {position: client.finished(one) for position, one in asked.items()}
    return [_inspection(found[one.position]) if one.position in found else Inspection(one.state) for one in items]


def _inspection(ended: Operation) -> Inspection:
    if ended.verified is not None:
        return Inspection(ended.verified.verdict, ended.verified.message)
    why = f"{ended.error.message} {ended.error.remedy}" if ended.error else None
    return Inspection("unknown", why)


def _row(one: Checkpoint, what: str) -> tuple[str, ...]:
    colour = _COLOURS.get(what)
    shown = f"[{colour}]{what}[/]" if colour else what
    return (
        str(one.step),
        day(one.ts),
        size(one.bytes) or "",
        seconds(one.seconds) or "",
        seconds(one.held_s) or "",
        f"{shown}, pinned" if one.pinned else shown,
        escape(one.path),
    )


def _explain(screen: Screen, asked: str, reasons: list[str], following: int | None) -> None:
    """`asked`: the job, and the options with which the others are seen as these."""
    for reason in reasons:
        screen.say(reason)
    if following:
        screen.hint(f"More with: shardyard checkpoints {asked} --before {following}")
