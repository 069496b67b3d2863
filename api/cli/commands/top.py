"""`shardyard top`: jobs and nodes on one screen, refreshed; running jobs first."""

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from ....service.schemas.job import Job
from ....service.schemas.node import Node
from ...client import ApiError, Client, Unreachable
from ..end_signals import EndSignals
from ..exit_codes import ExitCode
from ..options import Json, Url
from ..terminal.screen import Screen, size, table
from .jobs import COLUMNS as JOB_COLUMNS
from .jobs import row as job_row
from .nodes import COLUMNS as NODE_COLUMNS
from .nodes import in_use
from .nodes import row as node_row

#: Lines that are neither a job nor a node: two headings, the first and last line, a line between.
_FRAME = 6
_PIPED = 50


#: What is really used: by a job's ranks (a CPU is 100 %), and by all processes of a node.
JOB_USE = ("CPU", "RESIDENT", "GPU")
NODE_USE = ("CPU USED", "RAM USED")


def job_use(job: Job) -> tuple[str, ...]:
    """A job's columns of `JOB_USE`; empty where there is no sample."""
    use = job.use
    return ("", "", "") if use is None else (_percent(use.cpu), size(use.memory) or "", _percent(use.gpu))


def node_use(node: Node) -> tuple[str, ...]:
    """A node's columns of `NODE_USE`; empty where no gang samples it."""
    return ("", "") if node.use is None else (_percent(node.use.cpu), size(node.use.memory_used) or "")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


@dataclass(frozen=True)
class Observation:
    """Jobs and nodes at one time. `more`: there are jobs that were not read, `more_running`: running ones among them."""

    jobs: list[Job]
    nodes: list[Node]
    more: bool = False
    more_running: bool = False

    def fitting(self, lines: int) -> RenderableType:
        """The part that fits on this many lines; nodes take at most half."""
        nodes = self.nodes[: max(1, (lines - _FRAME) // 2)]
        jobs = self.jobs[: max(1, lines - _FRAME - len(nodes))]
        head = Text.from_markup(self._head(len(jobs), len(nodes)), overflow="ellipsis")
        used = [(*job_row(job), *job_use(job)) for job in jobs], [(*node_row(node), *node_use(node)) for node in nodes]
        shown = table((*JOB_COLUMNS, *JOB_USE), used[0]), table((*NODE_COLUMNS, *NODE_USE), used[1])
        return Group(head, Text(""), shown[0], Text(""), shown[1])

    def _head(self, jobs: int, nodes: int) -> str:
        alive = [node for node in self.nodes if node.alive]
        cpus, gpus = f"{in_use(alive, 'cpu')} CPU ranks", f"{in_use(alive, 'cuda')} GPUs"
        running = f"{sum(job.state == 'running' for job in self.jobs)}{'+' if self.more_running else ''}"
        hidden = " · more jobs: shardyard list" if self.more or jobs < len(self.jobs) else ""
        unseen = f" · {len(self.nodes) - nodes} more nodes: shardyard nodes" if nodes < len(self.nodes) else ""
        return f"[bold]{running} running[/] · {cpus} · {gpus} in use on {len(alive)} nodes{escape(hidden + unseen)}"


def top(
    interval: Annotated[float, typer.Option("--interval", min=0.2, max=3600, help="Seconds between refreshes.")] = 2.0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show jobs and nodes on one screen, refreshed; q quits. In a pipe, print once."""
    screen = Screen()
    with Client(url) as client:
        if json:
            screen.json(_to_json(poll(client, _PIPED)))
        elif not screen.out.is_terminal or screen.out.is_dumb_terminal or not sys.stdin.isatty():
            screen.out.print(poll(client, _PIPED).fitting(2 * _PIPED))
        else:
            try:
                with EndSignals():
                    _stay(screen, client, interval)
            except KeyboardInterrupt:
                raise typer.Exit(ExitCode.INTERRUPTED) from None


def poll(client: Client, most: int) -> Observation:
    """The running jobs, then the newest others, at most `most` of each."""
    running = client.jobs(state="running", limit=min(200, most))
    newest = client.jobs(limit=min(200, most))
    known = {job.id for job in running.items}
    jobs = [*running.items, *(job for job in newest.items if job.id not in known)]
    return Observation(jobs, client.nodes(), bool(running.next or newest.next), bool(running.next))


def _to_json(seen: Observation) -> dict[str, object]:
    return {
        "jobs": [job.model_dump(mode="json") for job in seen.jobs],
        "nodes": [node.model_dump(mode="json") for node in seen.nodes],
    }


def _stay(screen: Screen, client: Client, interval: float) -> None:
    console = screen.out
    seen = poll(client, console.size.height)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        status = "q quits"
        while True:
            lines = console.size.height
            live.update(Group(Text(status, style="dim"), seen.fitting(lines - 1)), refresh=True)
            if pressed(interval) in {"q", "Q", "\x1b", ""}:
                return
            try:
                seen, status = poll(client, lines), "q quits"
            except Unreachable as error:
                status = f"{error.detail} Trying again; the lines below are older. q quits"
            except ApiError as error:
                status = f"{error.detail} q quits"


@contextmanager
def _keys() -> Iterator["_Keys"]:
    """Switches the terminal to raw input, and restores it on exit."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _Keys(descriptor)
    finally:
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@dataclass(frozen=True)
class _Keys:
    descriptor: int

    def __call__(self, seconds: float) -> str | None:
        """The key pressed within this many seconds, None if none was; empty at end of input."""
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        return os.read(self.descriptor, 32).decode(errors="replace") if ready else None  # an arrow key is Esc and more
