"""One metric over its steps as a chart on a terminal, with its newest value and the extremes of its buckets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.markup import escape

from ....service.schemas.curve import Series
from .chart import chart, points
from .screen import Screen, logged

#: Characters left of a chart, for its highest and lowest value.
_LABEL: Final = 12
#: Fewest and most lines of a chart.
_TALL: Final = (4, 12)


def width_of(screen: Screen) -> int:
    """Columns that a chart has on the screen."""
    return max(20, screen.out.width - _LABEL - 2)


def height_of_each(screen: Screen, charts: int) -> int:
    """Number of lines of each chart, if this many are shown together."""
    return max(_TALL[0], min(_TALL[1], (screen.out.height - 2) // (charts or 1) - 3))


@dataclass(frozen=True)
class Axis:
    """The buckets of a series: their first steps, their width, and the last step."""

    starts: Sequence[int]
    width: int
    end: int


def draw(screen: Screen, name: str, axis: Axis, series: Series, wide: int, tall: int) -> None:
    """One chart of a series."""
    curve = points(axis.starts, series.mean, series.low, series.high)
    if not curve:
        return
    top, bottom = max(one.high for one in curve), min(one.low for one in curve)
    last = "" if series.last is None else f"  {logged(series.last)} at step {axis.end:,}"
    screen.out.print(f"[bold]{escape(name)}[/]{last}" + _of(axis.width))
    for number, line in enumerate(chart(curve, wide, tall)):
        label = f"{top:.5g}" if number == 0 else f"{bottom:.5g}" if number == tall - 1 else ""
        screen.out.print(f"{label:>{_LABEL}} [cyan]{line}[/]")
    begin, end = f"step {int(curve[0].at):,}", f"step {int(curve[-1].at):,}"
    screen.out.print(f"{'':{_LABEL}} {begin}{end:>{max(0, wide - len(begin))}}")


def _of(width: int) -> str:
    return f", each point {width:,} steps: their mean, lowest and highest" if width > 1 else ""
