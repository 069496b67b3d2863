"""`shardyard incidents` and `shardyard timeline`: what happened to a job."""

import time
from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text

from ....service.schemas.incident import Incident
from ....service.schemas.timeline import StateSpan, Timeline, TimelineEvent
from ...client import Client
from ..job_names import job_id
from ..options import JobName, Json, Url
from ..terminal.screen import Screen, day, seconds
from ..terminal.sparkline import bar

#: How each state is drawn: a character of its own, so that colour is not needed.
_LOOKS = {
    "queued": ("·", "bright_black"),
    "placing": ("-", "yellow"),
    "starting": ("=", "yellow"),
    "running": ("█", "cyan"),
    "recovering": ("▒", "red"),
    "pausing": ("<", "magenta"),
    "paused": ("_", "magenta"),
    "resharding": ("<", "magenta"),
    "stopping": ("<", "yellow"),
    "cancelling": ("x", "yellow"),
}
_OTHER = ("?", "")


def incidents(
    job: JobName,
    traceback: Annotated[bool, typer.Option("--traceback", help="Print tracebacks of exceptions.")] = False,
    stacks: Annotated[
        bool,
        typer.Option(
            "--stacks",
            help="Print waits, up to 16 different stacks, first that of the rank at fault, and the last lines of its log.",
        ),
    ] = False,
    newest: Annotated[bool, typer.Option("--newest", help="Print the newest incidents first.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Continue after the previous page.")] = 0,
    before: Annotated[
        int | None, typer.Option("--before", min=1, help="With --newest: continue after the previous page.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print a job's incidents and how each was handled."""
    if before is not None and not newest:
        raise typer.BadParameter("--before goes with --newest.")
    if after and newest:
        raise typer.BadParameter("--after goes with the oldest first; with --newest use --before.")
    screen = Screen()
    with Client(url) as client:
        found = job_id(client, job, after or before)
        page = client.incidents(found, after=after, newest=newest, before=before)
    if json:
        screen.json(page)
        return
    for incident in page.items:
        screen.line(f"{day(incident.ts)}  {' '.join(incident.summary.split())}")
        if traceback and incident.traceback:
            screen.text(incident.traceback)
        if stacks:
            _what_was_seen(screen, incident)
    if not page.items:
        screen.hint("No incidents are stored.")  # retention may have removed those of an ended job
    if page.next:
        place = f"--newest --before {page.next}" if newest else f"--after {page.next}"
        same = " --traceback" * traceback + " --stacks" * stacks
        screen.hint(f"More with: shardyard incidents {found} {place}{same}")


def _what_was_seen(screen: Screen, incident: Incident) -> None:
    """Print the evidence of an incident: waits, stacks, log lines."""
    for wait in incident.waiting:
        screen.line(
            f"ranks {wait.ranks} waited {wait.seconds:.0f} s in {wait.op} {wait.seq} of the {wait.group} group {wait.members}"
        )
    for line in incident.nccl_ras:
        screen.line(line)
    for entry in incident.stacks:
        screen.line(f"ranks {entry.ranks}:")
        _lines(screen, entry.stack.splitlines())
    if incident.log:
        screen.line(f"the last lines of rank {incident.rank}:")
        _lines(screen, incident.log)


def _lines(screen: Screen, lines: list[str]) -> None:
    for line in lines:
        screen.line(f"  {line}")


def timeline(job: JobName, url: Url = None, json: Json = False) -> None:
    """Print a job's states over time, with incidents, repairs and layout changes."""
    screen = Screen()
    with Client(url) as client:
        found = client.timeline(job)
    if json:
        screen.json(found)
        return
    if screen.out.is_terminal and found.spans:
        _draw(screen, found)
    rows = sorted([*map(_span, found.spans), *map(_mark, found.marks)], key=lambda row: row[0])
    screen.table(("WHEN", "WHAT", "LASTED", "ATTEMPT", "GENERATION", "STEP", "ABOUT"), [row[1] for row in rows])
    if not found.complete:
        screen.say("Earlier states were left out.")
    if any(mark.kind == "incident" for mark in found.marks):
        screen.hint(f"See what went wrong with: shardyard incidents {job} --newest")


def _span(span: StateSpan) -> tuple[float, tuple[str, ...]]:
    lasted = "" if span.ended is None else seconds(span.ended - span.begun) or ""
    generation = str(span.generation) if span.generation else ""
    return span.begun, (day(span.begun), span.state, lasted, str(span.attempt), generation, "", span.reason or "")


def _mark(mark: TimelineEvent) -> tuple[float, tuple[str, ...]]:
    about = escape(mark.about) + (f", rank {mark.rank}" if mark.rank is not None else "")
    step = "" if mark.step is None else f"{mark.step:,}"
    colour = {"incident": "red", "repair": "green"}.get(mark.kind, "bold")
    return mark.ts, (day(mark.ts), f"[{colour}]{mark.kind}[/]", "", str(mark.attempt), "", step, about)


def _draw(screen: Screen, found: Timeline) -> None:
    """Draw the states on one line, scaled by duration, with a legend."""
    now = time.time()
    lengths = [((span.ended or now) - span.begun, _LOOKS.get(span.state, _OTHER)[0]) for span in found.spans]
    line, colours = Text(no_wrap=True), dict(_LOOKS.values())
    for character in bar(lengths, sum(length for length, _ in lengths), max(20, screen.out.width - 1)):
        line.append(character, style=colours.get(character, ""))
    screen.out.print(line)
    legend = Text()
    for state in dict.fromkeys(span.state for span in found.spans):
        character, colour = _LOOKS.get(state, _OTHER)
        legend.append(character, style=colour).append(f" {state}  ")
    screen.out.print(legend)
