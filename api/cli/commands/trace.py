"""`shardyard trace`: records the next steps of a running job and prints where each rank's time went."""

import gzip
import io
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from ....service.schemas.trace import Trace, TracedRank, Traces, TraceSummary
from ....workers.messages.trace_request import MOST_STEPS
from ...client import Client
from ...given_path import given_path
from ..exit_codes import ExitCode
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, milliseconds, moment, runs_on
from ..terminal.sparkline import bar

_POLL_S: Final = 0.3
_WIDE: Final = 48
#: Traces in a list.
_PAGE: Final = 100

#: How each category is drawn: a character of its own, so that colour is not needed.
_LOOKS: Final = {
    "forward": ("█", "blue"),
    "backward": ("▓", "green"),
    "weight": ("▒", "cyan"),
    "optimizer": ("◆", "magenta"),
    "data": ("=", "yellow"),
    "other": ("+", "red"),
    "send": (">", "bright_black"),
    "receive": ("<", "bright_black"),
    "collective": ("░", "bright_black"),
}


def trace(
    job: JobName,
    steps: Annotated[int, typer.Option("--steps", min=1, max=MOST_STEPS, help="Number of consecutive steps.")] = 3,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write a file for Perfetto; compressed if FILE ends with .gz."
        ),
    ] = None,
    show: Annotated[str | None, typer.Option("--show", metavar="TRACE", help="Show an earlier trace.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the job's traces, newest first.")] = False,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TRACE", help="With --list: continue after the previous page.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Record the next steps of a running job on every rank, and print a summary."""
    screen = Screen()
    if before is not None and not list_:
        raise typer.BadParameter("--before needs --list.")
    with Client(url) as client:
        if list_:
            page = client.traces(job, before=before, limit=_PAGE)
            screen.json(page) if json else _list(screen, job, page)
            return
        found = client.trace_summary(job, show) if show else _recorded(screen, client, client.trace(job, steps=steps))
        try:
            if output and found.ranks:
                _save(screen, client, found.trace, output)
        finally:  # last, because output into a pipe whose reader has ended ends the command
            screen.json(found) if json else _show(screen, found)
    if found.trace.state == "open":
        screen.say(
            f"{found.trace.id} is not finished: {found.trace.parts} of {found.trace.parts_wanted} steps of its ranks are there."
        )
        if output and not found.ranks:
            raise typer.Exit(ExitCode.ERROR)
    if found.trace.state == "failed":
        if not json:
            screen.hint(f"See what happened with: shardyard incidents {found.trace.job}")
        raise typer.Exit(ExitCode.ERROR)


def _show(screen: Screen, found: TraceSummary) -> None:
    if found.trace.state == "failed":
        screen.error(f"{found.trace.id} failed: {found.trace.message}")
    if found.ranks:
        _draw(screen, found)


def _recorded(screen: Screen, client: Client, asked: Trace) -> TraceSummary:
    """Wait until the trace is finished. Ctrl-C does not stop it."""
    hint = f"The trace continues. See it with: shardyard trace {asked.job} --show {asked.id}"
    with runs_on(screen, hint), _progress(screen, asked) as bars:
        while True:
            found = client.retry_unreachable(partial(client.trace_summary, asked.job, asked.id))
            bars.update(bars.task_ids[0], completed=found.trace.parts)
            if found.trace.state != "open":
                return found
            time.sleep(_POLL_S)


@contextmanager
def _progress(screen: Screen, asked: Trace) -> Iterator[Progress]:
    """Print progress as ranks report steps; in a pipe, only the start."""
    if not screen.err.is_terminal:
        screen.say(f"Tracing {asked.steps} steps as {asked.id}.")
    shown = (TextColumn(f"tracing {asked.steps} steps"), BarColumn(), MofNCompleteColumn(), TextColumn("ranks × steps"))
    disable = not screen.err.is_terminal
    with Progress(*shown, console=screen.err, transient=True, disable=disable) as bars:
        bars.add_task("", total=asked.parts_wanted)
        yield bars


def _draw(screen: Screen, found: TraceSummary) -> None:
    first, last = found.steps[0].step, found.steps[-1].step
    span = f"steps {first} to {last}, means" if last > first else f"step {first}"
    screen.out.print(f"[bold]{found.trace.id}[/]  {span}")
    if found.trace.state == "done" and found.trace.message:  # fewer steps than were asked for
        screen.say(found.trace.message)
    whole = max(rank.seconds for rank in found.ranks)
    for rank in found.ranks:
        screen.out.print(_row(rank, whole))
    screen.out.print(_legend(found.ranks))
    if found.bubble_measured is not None:
        ideal = "" if found.bubble_simulated is None else f", {found.bubble_simulated:.1%} ideal"
        screen.out.print(f"bubble  {found.bubble_measured:.1%} measured{ideal}")
    if found.slowest_rank is not None and found.slower_by_s is not None:
        more = f"{milliseconds(found.slower_by_s)} more compute time than the others' median"
        screen.out.print(f"slowest rank  {found.slowest_rank}, {more}")


def _row(rank: TracedRank, whole: float) -> Text:
    drawn = bar([(rank.sums.get(name, 0.0), look[0]) for name, look in _LOOKS.items()], whole, _WIDE)
    line = Text(f"rank {rank.rank:>4}  ", no_wrap=True)
    colours = dict(_LOOKS.values())
    for character in drawn:
        line.append(character, style=colours.get(character, ""))
    return line.append(
        f"  {milliseconds(rank.seconds)}: {milliseconds(rank.busy_s)} own, {milliseconds(rank.wait_s)} waiting"
    )


def _legend(ranks: Sequence[TracedRank]) -> Text:
    """List the traces."""
    line = Text(" " * 11)
    for name, (character, colour) in _LOOKS.items():
        if any(rank.sums.get(name) for rank in ranks):
            line.append(character, style=colour).append(f" {name}  ")
    return line


def _list(screen: Screen, job: str, page: Traces) -> None:
    rows = [
        (one.id, moment(one.asked_at.timestamp()), one.state, _steps(one), escape(one.message or ""))
        for one in page.items
    ]
    screen.table(("TRACE", "ASKED", "STATE", "STEPS", "MESSAGE"), rows)
    if not page.items:
        screen.hint(f"No traces. Record one with: shardyard trace {job}")
    if page.next:
        screen.hint(f"More with: shardyard trace {job} --list --before={page.next}")


def _steps(one: Trace) -> str:
    return f"{one.steps}" if one.first_step is None else f"{one.first_step}–{one.last_step}"


def _save(screen: Screen, client: Client, found: Trace, output: Path) -> None:
    packed = client.perfetto(found.job, found.id)
    with given_path(output, "--output").open("wb") as file:
        if output.suffix == ".gz":
            file.write(packed)
        else:
            shutil.copyfileobj(gzip.GzipFile(fileobj=io.BytesIO(packed)), file)
    screen.hint(f"Open {output} at https://ui.perfetto.dev")
