"""Output: colour and tables on a terminal, plain lines in a pipe. Results go to stdout, everything else to stderr."""

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ....service.schemas.job import Job, Summary
from ....service.schemas.problem import FieldError
from ...client import Unreachable
from ..exit_codes import ExitCode
from . import sanitize

_COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "stopping": "yellow",
    "cancelling": "yellow",
    "running": "cyan",
    "queued": "dim",
}
_ENDLESS = 100_000


class _Console(Console):
    """Text without terminal control characters. Tables and drawings consist of such text.

    The terminal wraps lines of text: newlines between would break a command that is copied. Tables and drawings fit its width.
    """

    def print(self, *objects: Any, **more: Any) -> None:
        more.setdefault("soft_wrap", all(isinstance(each, str) for each in objects))
        super().print(*(sanitize.lines(each) if isinstance(each, str) else each for each in objects), **more)


@contextmanager
def runs_on(screen: "Screen", hint: str) -> Iterator[None]:
    """Ctrl-C ends the command alone, with this hint, and so does a control plane that does not come back."""
    try:
        yield
    except Unreachable:
        screen.hint(hint)
        raise
    except KeyboardInterrupt:
        screen.hint(hint)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _console(*, stderr: bool) -> _Console:
    """A pipe has no width: nothing is cut or wrapped there. Nor does it become a terminal by FORCE_COLOR or TTY_COMPATIBLE."""
    if (sys.stderr if stderr else sys.stdout).isatty():
        return _Console(highlight=False, emoji=False, stderr=stderr)
    return _Console(highlight=False, emoji=False, stderr=stderr, width=_ENDLESS, force_terminal=False)


class Screen:
    """One command's output. NO_COLOR and pipes are respected."""

    def __init__(self) -> None:
        self.out, self.err = _console(stderr=False), _console(stderr=True)

    def say(self, text: str) -> None:
        """Print a note to stderr, since it is no result."""
        self.err.print(escape(text))

    def uploading(self, arrived: int, total: int) -> None:
        """Print how much of an upload has arrived: on a terminal on one line, else only once."""
        if self.err.is_terminal or arrived == 0:
            text = f"Uploading {size(total)} of code" + (f": {arrived / total:.0%}" if arrived else "")
            self.err.print(text, end="\r" if self.err.is_terminal else "\n")

    def link(self, address: str) -> None:
        """Print a URL that signs a browser in once. Only on a terminal: other users may read a log."""
        if self.err.is_terminal:
            self.err.print(f"Open the dashboard: {escape(address)}")
            self.say("The link signs you in once, within ten minutes. Make another with: shardyard open")
        else:
            self.say("Open the dashboard with: shardyard open")

    def hint(self, text: str) -> None:
        self.err.print(escape(text), style="bold")

    def planning(self) -> None:
        """Print what a submission of a module of the user's own waits for."""
        self.say("Dry-running the module for its memory plan; SHARDYARD_DRY_RUN_S=0 leaves it out.")

    def unplanned(self, reason: str) -> None:
        """Print why a job whose model is a module of the user's own has no memory plan."""
        self.hint(f"The memory of the module is not planned: {reason}")

    def error(self, detail: str, errors: Sequence[FieldError] = (), code: str = "") -> None:
        """Print an error and its code, and each finding with its field and remedy."""
        self.err.print(f"[bold red]error:[/] {escape(detail)}" + (f" [dim]({escape(code)})[/]" if code else ""))
        for finding in errors:
            message = "" if finding.message in detail else finding.message
            lead = ": ".join(filter(None, [finding.field, message]))
            if lead and lead not in detail:
                self.err.print(f"  [bold]{escape(lead)}[/]")
            if finding.remedy:
                self.err.print(f"  → {escape(finding.remedy)}")

    def warnings(self, found: Sequence[FieldError]) -> None:
        """Print warnings, each with its field and remedy."""
        for each in found:
            self.err.print(f"[bold yellow]warning:[/] {escape(': '.join(filter(None, [each.field, each.message])))}")
            if each.remedy:
                self.err.print(f"  → {escape(each.remedy)}")

    def json(self, value: BaseModel | dict[str, Any] | list[Any]) -> None:
        """Print one JSON document on one line, for programs."""
        body = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        sys.stdout.write(json.dumps(body, default=str) + "\n")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        """Print one line of text unchanged, but without terminal control characters."""
        sys.stdout.write(sanitize.line(text) + "\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        """Print lines of text unchanged, but without terminal control characters."""
        sys.stdout.write(sanitize.lines(text) + "\n" * (not text.endswith("\n")))
        sys.stdout.flush()

    def content(self, text: str) -> None:
        """Print what another program reads: unchanged in a pipe or a file, on a terminal without its control characters."""
        sys.stdout.write(sanitize.lines(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self.out.print(table(columns, rows))

    def facts(self, title: str, pairs: Iterable[tuple[str, str | None]]) -> None:
        """Print a heading and the facts below it. Unknown facts are left out."""
        known = [(sanitize.line(name), sanitize.line(value)) for name, value in pairs if value]
        if not known:
            return
        self.out.print(f"[bold]{escape(sanitize.line(title))}[/]")
        wide = max(len(name) for name, _ in known)
        for name, value in known:
            self.out.print(f"  {escape(name):<{wide}}  {escape(value)}")

    def paragraph(self, title: str, text: str) -> None:
        """Print a heading and the lines of a text below it, if there is a text."""
        if text:
            self.out.print(f"[bold]{escape(title)}[/]")
            for line in sanitize.lines(text).splitlines():
                self.out.print(f"  {escape(line)}")

    def summary(self, job: Job) -> None:
        """Print the summary of an ended job."""
        found = job.summary or Summary()
        self.facts(
            f"{job.name} ({job.id}) {job.state}",
            [
                ("layout", job.layout),
                ("steps", number(found.steps)),
                ("training loss", _span(found.first_loss, found.last_loss, found.last_steps)),
                ("validation loss", loss(found.validation_loss)),
                ("unigram loss", loss(found.unigram_loss)),
                ("tokens", number(found.tokens)),
                ("tokens/s", number(found.tokens_per_s)),
                ("tokens/s per device", number(found.tokens_per_s_device)),
                ("MFU", None if found.mfu is None else f"{found.mfu:.1%} ({found.mfu_formula})"),
                ("time to first step", seconds(found.time_to_first_step_s)),
                ("checkpoint", found.checkpoint or job.checkpoint),
                ("Hugging Face folder", found.export),
            ],
        )

    def failure(self, job: Job) -> None:
        """Print why a job failed, with the traceback in its message."""
        self.error(f"job {job.name} ({job.id}) failed" + (f": {job.reason}" if job.reason else ""))
        if job.message:
            self.err.print(escape(job.message))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Columns side by side without lines; a cell is markup and stays on its line."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(sanitize.line(column), no_wrap=True)
    for row in rows:
        drawn.add_row(*map(sanitize.line, row))
    return drawn


def state(job: Job) -> str:
    colour = _COLOURS.get(job.state)
    return f"[{colour}]{job.state}[/]" if colour else job.state


def loss(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f} nats/token"


def number(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def logged(value: float) -> str:
    """The value of a logged metric: a whole number, such as a step, with all its digits, another one with six."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 2**53 else f"{value:.6g}"


def seconds(value: float | None) -> str | None:
    """`0.8 s`, `42 s`, `3:20`, `2:03:20`."""
    if value is None:
        return None
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def milliseconds(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value * 1000:,.1f} ms" if value < 0.1 else f"{value * 1000:,.0f} ms"


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(value: float | None) -> str | None:
    """Bytes as on the page: `640 B`, `3.8 MiB`, `115.0 GiB`."""
    if value is None:
        return None
    power = 0 if value < 1024 else min(len(_UNITS) - 1, int(math.log2(value) / 10))
    return f"{value / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def age(moment: datetime | None) -> str:
    """How long ago, in one unit."""
    if moment is None:
        return ""
    past = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if past >= size:
            return f"{past // size:.0f}{unit}"
    return f"{past:.0f}s"


def clock(ts: float | None) -> str:
    """Local time of day of unix seconds."""
    return "" if ts is None else time.strftime("%H:%M:%S", time.localtime(ts))


def day(ts: float) -> str:
    """Local date and time of unix seconds."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ts))


def moment(ts: float) -> str:
    """Local time of unix seconds, with the date unless that is today's."""
    whole = day(ts)
    return clock(ts) if whole.split()[0] == day(time.time()).split()[0] else whole


def _span(first: float | None, last: float | None, steps: int | None) -> str | None:
    if first is None or last is None:
        return None
    mean = f" (mean of the last {steps} steps)" if steps and steps > 1 else ""
    return f"{first:.4f} → {last:.4f} nats/token{mean}"
