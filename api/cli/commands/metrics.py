"""`shardyard metrics`: what a job's program logged, as a list, or some of it as curves."""

import sys
from typing import Annotated

import typer
from rich.markup import escape

from ....service.schemas.logged_metric import LoggedCurves
from ...client import Client
from ..options import JobName, Json, Url
from ..terminal.metric_chart import Axis, draw, height_of_each, width_of
from ..terminal.screen import Screen, logged


def metrics(
    job: JobName,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]…", help="Names of metrics, to draw as curves.", show_default=False),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="List only metrics whose name contains this text.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="First step of the curves.")] = 0,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last step. Default: the newest.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List the metrics that a job's program logged, or draw some; in a pipe, print curves as tab-separated columns."""
    screen = Screen()
    with Client(url) as client:
        if not names:
            _list(screen, client, job, text, json)
            return
        wide = width_of(screen)
        drawn = screen.out.is_terminal and not json
        most = min(2 * wide, 800) if drawn else 400
        found = client.logged_curves(job, names, from_step=first, to_step=last, buckets=most)
    if json:
        screen.json(found)
        return
    missing = [name for name in names if name not in found.series]
    if missing:
        screen.say(f"The job has not logged {', '.join(missing)}. See what it has with: shardyard metrics {job}")
    if drawn:
        for name, curve in found.series.items():
            axis = Axis(curve.starts, curve.width, curve.last_step)
            draw(screen, name, axis, curve, wide, height_of_each(screen, len(found.series)))
    else:
        _columns(found)


def _list(screen: Screen, client: Client, job: str, text: str | None, json: bool) -> None:
    page = client.logged_metrics(job, text=text, limit=1000)  # a job has no more
    if json:
        screen.json(page)
        return
    rows = [
        (escape(one.name), "" if one.last is None else logged(one.last), f"{one.last_step:,}", _kept(one.width))
        for one in page.items
    ]
    screen.table(("NAME", "LAST", "AT STEP", "KEPT"), rows)
    if not page.items:
        screen.hint("Nothing is logged. A program logs with: shardyard.log({'accuracy': 0.9}, step=1)")


def _kept(width: int) -> str:
    return "every step" if width == 1 else f"mean and extremes of {width:,} steps"


def _columns(found: LoggedCurves) -> None:
    """A row for each step at which a bucket begins, with a heading; empty if a metric has no value there."""
    by_step: dict[int, dict[str, float | None]] = {}
    for name, curve in found.series.items():
        for step, mean in zip(curve.starts, curve.mean, strict=True):
            by_step.setdefault(step, {})[name] = mean
    lines = ["\t".join(["step", *found.series])]
    for step in sorted(by_step):
        cells = (by_step[step].get(name) for name in found.series)
        lines.append("\t".join([str(step), *("" if cell is None else f"{cell}" for cell in cells)]))
    sys.stdout.write("\n".join(lines) + "\n")
