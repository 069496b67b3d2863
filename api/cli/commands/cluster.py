"""`shardyard queue` and `shardyard usage`: what waits for devices and has them, and what the machines were used for."""

from typing import Annotated

import typer
from rich.markup import escape

from ....service.schemas.cluster import DeviceTimes, NodeChanges, PastAttempts, TimeRange
from ....service.schemas.queue import Queue, RunningJobs
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
    url: Url = None,
    json: Json = False,
) -> None:
    """List the jobs that wait for devices, in their order and with the reasons, and the jobs that have devices."""
    screen = Screen()
    with Client(url) as client:
        waiting, running = client.queue(limit=limit), client.running(limit=limit)
    if json:
        screen.json({"waiting": waiting.model_dump(mode="json"), "running": running.model_dump(mode="json")})
        return
    _print_queue(screen, waiting, running)


def _print_queue(screen: Screen, waiting: Queue, running: RunningJobs) -> None:
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
    more = waiting.total - len(waiting.items)
    screen.hint(f"{more} more wait; see --limit." if more > 0 else "" if waiting.items else "No job waits.")


def usage(
    since: Annotated[TimeRange, typer.Option("--since", help="How far back from now.")] = TimeRange.DAY,
    node: Annotated[
        str | None, typer.Option("--node", help="Only what ran on this node (id or host), and what happened to it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Lines of each table.")] = 20,
    url: Url = None,
    json: Json = False,
) -> None:
    """List who used how much device time, what ran on the machines, and what happened to them."""
    screen = Screen()
    with Client(url) as client:
        times = client.device_times(since)
        ran = client.past_attempts(since, node=node, limit=limit)
        changed = client.node_changes(since, node=node, limit=limit)
    if json:
        parts = {"device_times": times, "attempts": ran, "changes": changed}
        screen.json({name: part.model_dump(mode="json") for name, part in parts.items()})
        return
    if node is None:
        _print_times(screen, times)
    _print_history(screen, ran, changed)


def _print_times(screen: Screen, times: DeviceTimes) -> None:
    if times.items:
        rows = [(escape(one.actor), one.device, str(one.jobs), seconds(one.device_s) or "") for one in times.items]
        screen.table(TIMES, rows)
    else:
        screen.hint("No job had devices.")


def _print_history(screen: Screen, ran: PastAttempts, changed: NodeChanges) -> None:
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
