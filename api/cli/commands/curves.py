"""`shardyard curves`: a job's metrics over its steps, drawn on a terminal, tab-separated in a pipe."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.markup import escape

from ....service.schemas import dataframes
from ....service.schemas.curve import Curves, Series
from ...client import Client
from ..options import JobName, Json, Url
from ..terminal.chart import chart, points
from ..terminal.screen import Screen

#: Characters left of a chart, for its highest and lowest value.
LABEL = 12
_TALL = (4, 12)


def curves(
    job: JobName,
    names: Annotated[
        str,
        typer.Option(
            "--names",
            help="Metrics, separated by commas: loss, lr, grad_norm, loss_scale, tokens_per_s, step_s, step_s_max, mfu.",
        ),
    ] = "loss",
    first: Annotated[int, typer.Option("--from", min=1, help="First step.")] = 1,
    last: Annotated[int | None, typer.Option("--to", min=1, help="Last step. Default: the newest.")] = None,
    buckets: Annotated[
        int | None,
        typer.Option(
            "--buckets", min=2, max=800, help="Maximum number of buckets. Default: the terminal's width, else 400."
        ),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Draw a job's metrics over its steps, with the extremes of each bucket; in a pipe, print tab-separated columns."""
    screen = Screen()
    wide = max(20, screen.out.width - LABEL - 2)
    drawn = screen.out.is_terminal and not json
    most = buckets or (min(2 * wide, 800) if drawn else 400)
    with Client(url) as client:
        found = client.curves(job, names, from_step=first, to_step=last, buckets=most)
    if json:
        screen.json(found)
        return
    missing = [name for name in map(str.strip, names.split(",")) if name not in found.series]
    if not found.last_step:
        screen.hint(f"No step yet. See how far it is with: shardyard show {job}")
    elif missing:
        screen.say(f"No step from {first:,} to {last or found.last_step:,} has {', '.join(missing)}.")
    if drawn:
        _draw(screen, found, wide)
    else:
        _columns(found)


def _columns(found: Curves) -> None:
    """One row per bucket, by its first step, with a heading; empty if a bucket has no value."""
    columns = dict(dataframes.columns(found.series))
    rows = zip(found.starts, *columns.values(), strict=True)
    lines = [
        "\t".join(["step", *columns]),
        *("\t".join("" if cell is None else f"{cell}" for cell in row) for row in rows),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _draw(screen: Screen, found: Curves, wide: int) -> None:
    """Charts below each other, as tall as the screen allows."""
    axis = Axis(found.starts, found.width, found.end)
    for name, series in found.series.items():
        draw(screen, name, axis, series, wide, height_of_each(screen, len(found.series)))
    known = [one for one in found.evals if one.loss is not None]
    if known and "loss" in found.series:
        screen.out.print(f"validation loss {known[-1].loss:.4f} at step {known[-1].step:,}")


def height_of_each(screen: Screen, charts: int) -> int:
    """Lines of each of so many charts that are on the screen together."""
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
    last = "" if series.last is None else f"  {series.last:.6g} at step {axis.end:,}"
    screen.out.print(f"[bold]{escape(name)}[/]{last}" + _of(axis.width))
    for number, line in enumerate(chart(curve, wide, tall)):
        label = f"{top:.5g}" if number == 0 else f"{bottom:.5g}" if number == tall - 1 else ""
        screen.out.print(f"{label:>{LABEL}} [cyan]{line}[/]")
    begin, end = f"step {int(curve[0].at):,}", f"step {int(curve[-1].at):,}"
    screen.out.print(f"{'':{LABEL}} {begin}{end:>{max(0, wide - len(begin))}}")


def _of(width: int) -> str:
    return f", each point {width:,} steps: their mean, lowest and highest" if width > 1 else ""
