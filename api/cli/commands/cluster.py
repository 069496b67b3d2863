"""`shardyard queue` and `shardyard usage`: what waits for devices and has them, and what the machines were used for."""

import shlex
from collections.abc import Mapping
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.markup import escape

from ....service.schemas.cluster import DeviceTimes, NodeChanges, PastAttempts, TimeRange
from ....service.schemas.queue import MOST_COUNTED, Queue, RunningJobs
from ...client import Client
from ..options import Json, Url
from ..terminal.screen import Screen, day, seconds

WAITING = ("PLACE", "JOB", "ID", "USER", "NEEDS", "SINCE", "WAITS BECAUSE")
RUNNING = ("JOB", "ID", "STATE", "USER", "DEVICES", "MACHINES", "SINCE")
TIMES = ("USER", "DEVICES", "JOBS", "DEVICE TIME")
ATTEMPTS = ("ENDED", "JOB", "ID", "USER", "DEVICES", "DEVICE TIME", "ENDED AS")
CHANGES = ("TIME", "NODE", "CHANGE", "BY", "REASON")


def queue(
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Jobs of each kind.")] = 50,
    waiting_after: Annotated[
        str | None,
        typer.Option("--waiting-after", metavar="ID", help="Only those that wait after the job with this id."),
    ] = None,
    running_after: Annotated[
        str | None,
        typer.Option("--running-after", metavar="ID", help="Only those with devices after the job with this id."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List the jobs that wait for devices, in their order and with the reasons, and the jobs that have devices."""
    screen = Screen()
    with Client(url) as client:
        running = client.running(after=running_after, limit=limit) if running_after or not waiting_after else None
        waiting = client.queue(after=waiting_after, limit=limit) if waiting_after or not running_after else None
    if json:
        _print_json(screen, {"waiting": waiting, "running": running})
        return
    again = f"shardyard queue --limit={limit}"
    if running is not None:
        _print_running(screen, running, again)
    if waiting is not None:
        _print_waiting(screen, waiting, again)


def _print_running(screen: Screen, running: RunningJobs, again: str) -> None:
    if running.items:
        screen.table(
            RUNNING,
            [
                (
                    *(escape(text) for text in (one.name, one.job, one.state, one.actor)),
                    f"{one.devices} {one.device or ''}",
                    str(one.nodes or ""),
                    day(one.since.timestamp()),
                )
                for one in running.items
            ],
        )
    if running.next:
        screen.hint(f"More jobs with devices: {again} --running-after={running.next}")


def _print_waiting(screen: Screen, waiting: Queue, again: str) -> None:
    if waiting.items:
        screen.table(
            WAITING,
            [
                (
                    str(one.position),
                    *(escape(text) for text in (one.name, one.job, one.actor)),
                    f"{one.ranks + one.spares} {one.device}",
                    day(one.since.timestamp()),
                    escape(one.message or "not looked at yet"),
                )
                for one in waiting.items
            ],
        )
    if waiting.next:
        more = "More" if waiting.total >= MOST_COUNTED else f"{waiting.total - waiting.items[-1].position} more"
        screen.hint(f"{more} wait: {again} --waiting-after={waiting.next}")
    elif not waiting.total:
        screen.hint("No job waits.")


def usage(
    since: Annotated[TimeRange, typer.Option("--since", help="How far back from now.")] = TimeRange.DAY,
    node: Annotated[
        str | None, typer.Option("--node", help="Only what ran on this node (id or host), and what happened to it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Lines of each table.")] = 20,
    attempts_after: Annotated[
        str | None, typer.Option("--attempts-after", metavar="CURSOR", help="Only the next page of what ran.")
    ] = None,
    changes_after: Annotated[
        str | None, typer.Option("--changes-after", metavar="CURSOR", help="Only the next page of what happened.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List who used how much device time, what ran on the machines, and what happened to them."""
    screen = Screen()
    first = not (attempts_after or changes_after)
    with Client(url) as client:
        times = client.device_times(since) if first else None
        ran = changed = None
        if first or attempts_after:
            ran = client.past_attempts(since, node=node, after=attempts_after, limit=limit)
        if first or changes_after:
            changed = client.node_changes(since, node=node, after=changes_after, limit=limit)
    if json:
        _print_json(screen, {"device_times": times, "attempts": ran, "changes": changed})
        return
    if times is not None and node is None:
        _print_times(screen, times)
    chosen = [f"--since={since.value}", f"--limit={limit}", *([] if node is None else [f"--node={node}"])]
    again = shlex.join(["shardyard", "usage", *chosen])
    if ran is not None:
        _print_attempts(screen, ran, again)
    if changed is not None:
        _print_changes(screen, changed, again)


def _print_json(screen: Screen, parts: Mapping[str, BaseModel | None]) -> None:
    screen.json({name: part.model_dump(mode="json") for name, part in parts.items() if part is not None})


def _print_times(screen: Screen, times: DeviceTimes) -> None:
    if times.items:
        rows = [(escape(one.actor), one.device, str(one.jobs), seconds(one.device_s) or "") for one in times.items]
        screen.table(TIMES, rows)
    else:
        screen.hint("No job had devices.")


def _print_attempts(screen: Screen, ran: PastAttempts, again: str) -> None:
    if ran.items:
        screen.table(
            ATTEMPTS,
            [
                (
                    day(one.until.timestamp()),
                    *(escape(text) for text in (one.name, one.job, one.actor)),
                    f"{one.devices:g} {one.device}",
                    seconds(one.device_s) or "",
                    escape(one.outcome or ""),
                )
                for one in ran.items
            ],
        )
    if ran.next:
        screen.hint(f"More attempts: {again} {shlex.quote(f'--attempts-after={ran.next}')}")


def _print_changes(screen: Screen, changed: NodeChanges, again: str) -> None:
    if changed.items:
        screen.table(
            CHANGES,
            [
                (
                    day(one.at.timestamp()),
                    *(escape(text) for text in (one.host or one.node[:12], one.kind, one.actor or "", one.message)),
                )
                for one in changed.items
            ],
        )
    if changed.next:
        screen.hint(f"More changes: {again} {shlex.quote(f'--changes-after={changed.next}')}")
