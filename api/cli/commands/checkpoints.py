"""`shardyard checkpoints`: lists and verifies a job's checkpoints, from here or on the cluster."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ....service.schemas.checkpoint import Checkpoint
from ....service.schemas.operation import Operation
from ....workers.checkpoint.inspect import Inspection, inspect_checkpoint
from ....workers.storage.uri import is_bucket
from ...client import Client
from ..exit_codes import ExitCode
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, clock, seconds, size

#: Fewer than may wait of one job.
_AT_ONCE: Final = 10

_COLOURS = {"valid": "green", "corrupt": "red", "deleted": "dim"}


def checkpoints(
    job: JobName,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file with its checksum; exit with 1 if one is corrupt.")
    ] = False,
    on_cluster: Annotated[
        bool,
        typer.Option("--on-cluster", help="Verify on the cluster, for storage that cannot be read from here."),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of checkpoints.")] = 20,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Continue after the previous page.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List a job's checkpoints, newest first, with the state of each; --verify checks them again."""
    screen = Screen()
    with Client(url) as client:
        page = client.checkpoints(job, before=before, limit=limit)
        findings = _asked(client, job, page.items) if on_cluster else [_seen(one, verify) for one in page.items]
    rows = [(one, found.verdict, found.why) for one, found in zip(page.items, findings, strict=True)]
    if json:
        items = [{**one.model_dump(mode="json"), "verdict": what, "message": why} for one, what, why in rows]
        screen.json({"items": items, "next": page.next})
    else:
        columns = ("STEP", "REPORTED", "SIZE", "TOOK", "TRAINING HELD", "STATE", "PATH")
        screen.table(columns, [_row(one, what) for one, what, _ in rows])
        _explain(screen, job, [why for _, _, why in rows if why], page.next)
        if verify and not on_cluster and any(what == "unknown" for _, what, _ in rows):
            screen.hint(f"Have those verified where they can be seen: shardyard checkpoints {job} --on-cluster")
    if any(what == "corrupt" for _, what, _ in rows):
        raise typer.Exit(ExitCode.ERROR)


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
