"""`shardyard curves`: a job's metrics over its steps, drawn on a terminal, tab-separated in a pipe."""

import sys
from typing import Annotated

import typer

from ....service.schemas import dataframes
from ....service.schemas.curve import Curves
from ...client import Client
from ..options import JobName, Json, Url
from ..terminal.metric_chart import Axis, draw, height_of_each, width_of
from ..terminal.screen import Screen


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
    wide = width_of(screen)
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
