"""A running job on one piece of a terminal: how far it is, its loss, its ranks, its last incident. Always the newest of each.

`Picture` holds what is known and draws it; `View` keeps it on the screen, with remarks going by above it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ....service.schemas.step import Step
from ...client import Event
from . import sanitize
from .progress import Lines, Meter, Pace
from .screen import clock
from .sparkline import Course, bar, sparkline

#: More ranks than these would push everything else off a screen: the slowest ones are shown.
_MOST_RANKS = 8
_FINAL_WORDS = {"succeeded": "green", "failed": "red", "cancelled": "yellow"}


class Picture:
    """The state of a job's live view, and its rendering."""

    def __init__(self, steps: int, state: str = "") -> None:
        self._steps, self._state = steps, state
        self._pace = Pace(steps)
        self._course = Course()
        self._losses: list[float] = []  # the first and the newest
        self._step: dict[str, Any] = {}
        self._pace_text = ""
        self._probe: dict[str, Any] = {}
        self._incident = ""

    def before(self, points: list[Step]) -> None:
        """Add the curve before the watch started."""
        for point in points:
            self._add_loss(point.loss)

    def step(self, data: dict[str, Any]) -> None:
        self._step = data
        self._pace_text = self._pace.text(data)
        self._add_loss(data.get("loss"))

    def _add_loss(self, loss: float | None) -> None:
        self._course.add(loss)
        if loss is not None:
            self._losses = [*self._losses[:1], loss]

    def see(self, event: Event) -> None:
        """Add any event but a step."""
        if event.kind == "state":
            self._state = str(event.data.get("state"))
        elif event.kind == "probe":
            self._probe = event.data
        elif event.kind == "incident":
            message = f"{event.data.get('cause')} {event.data.get('message') or ''}".strip().partition("\n")[0]
            self._incident = f"{clock(event.ts)} {message}"

    def __rich_console__(self, console: Console, options: Any) -> Any:
        yield self.render(options.max_width)

    def render(self, width: int) -> RenderableType:
        """The rendered view, `width` characters wide."""
        parts: list[RenderableType] = [self._head(width)]
        parts += [_line(text, width) for text in (self._loss(width), self._times()) if text]
        parts += [_line(text, width) for text in self._ranks(width)]
        if self._incident:
            parts.append(_line(f"last incident  {self._incident}", width, "yellow"))
        return Group(*parts)

    def _head(self, width: int) -> RenderableType:
        step = self._step.get("step", 0)
        row = Table.grid(padding=(0, 2))
        state = Text(self._state, style=_FINAL_WORDS.get(self._state, "cyan"))
        if not self._steps:  # of a program they are not known
            return state
        position = Text(f"{step}/{self._steps}" + (f" · {sanitize.line(self._pace_text)}" if self._pace_text else ""))
        room = max(10, min(46, width - len(self._state) - len(position) - 4))
        row.add_row(state, ProgressBar(total=max(1, self._steps), completed=step, width=room), position)
        return row

    def _loss(self, width: int) -> str:
        if len(self._losses) < 2:
            return ""
        first, newest = self._losses
        return f"loss  {sparkline(self._course.values, min(60, max(10, width - 30)))}  {first:.4f} → {newest:.4f}"

    def _times(self) -> str:
        """The step's time over the ranks, if it was reported."""
        step = self._step
        if step.get("step_s_max") is None or step.get("step_s_min") is None:
            return ""
        slowest = "" if step.get("slowest_rank") is None else f" · slowest: rank {step['slowest_rank']}"
        return f"step  {_ms(step['step_s_min'])} to {_ms(step['step_s_max'])} over ranks{slowest}"

    def _ranks(self, width: int) -> list[str]:
        """Own work and waiting per rank of the newest probed step; the slowest first if not all fit."""
        own, waited = self._probe.get("busy_s") or [], self._probe.get("wait_s") or []
        times = [(rank, mine, rest) for rank, (mine, rest) in enumerate(zip(own, waited, strict=False))]
        if not times:
            return []
        slowest = sorted(times, key=lambda time: -time[1])[:_MOST_RANKS]
        whole = max(mine + rest for _, mine, rest in times)
        room = max(10, min(40, width - 40))
        lines = [f"ranks at step {self._probe.get('step')}: compute time █, waiting ░"]
        lines += [
            f"  {rank:>4}  {bar([(mine, '█'), (rest, '░')], whole, room)}  {_ms(mine)} own, {_ms(rest)} waiting"
            for rank, mine, rest in sorted(slowest)
        ]
        if len(times) > len(slowest):
            lines.append(f"  {len(times) - len(slowest)} others worked for a shorter time")
        return lines


class View:
    """The live view, kept at the bottom of a terminal below the notes."""

    def __init__(self, console: Console, steps: int, state: str = "") -> None:
        self._picture = Picture(steps, state)
        # What is printed to a terminal stands above the view; a pipe gets it as it is.
        redirected = sys.stdout.isatty()
        self._live = Live(self._picture, console=console, refresh_per_second=8, redirect_stdout=redirected)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self._live.stop()

    def before(self, points: list[Step]) -> None:
        self._picture.before(points)

    def step(self, data: dict[str, Any]) -> None:
        self._picture.step(data)

    def see(self, event: Event) -> None:
        self._picture.see(event)

    def note(self, text: str) -> None:
        self._live.console.print(escape(sanitize.line(text)))


def _line(text: str, width: int, style: str = "") -> Text:
    line = Text(sanitize.line(text), style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


@contextmanager
def meter(console: Console, steps: int, state: str = "") -> Iterator[Meter]:
    """A live view on a terminal, a line every few seconds elsewhere."""
    if console.is_terminal and not console.is_dumb_terminal:
        with View(console, steps, state) as view:
            yield view
    else:
        yield Lines(console, steps)
