"""Renders a job for a notebook: a table, and the loss curve as SVG. No script, no external resources."""

import time
from collections.abc import Callable, Sequence
from html import escape
from math import isfinite
from typing import Any, Protocol

from ...service.schemas.job import Job
from ...service.schemas.step import Metrics

#: Points of a curve of this width.
POINTS = 400
_WIDE, _HIGH, _LEFT, _BELOW = 640, 220, 56, 22
_TRAINED, _VALIDATED, _INK = "#2563eb", "#d97706", "#888888"


class Shown(Protocol):
    """A display in the notebook that can be redrawn."""

    def update(self, value: Any) -> None: ...


Display = Callable[[Any], Shown]


def ipython_display(value: Any) -> Shown:
    """Show a value in the notebook. Raises ImportError outside a notebook."""
    try:
        from IPython.display import display
    except ImportError:
        raise ImportError(
            "job.watch() shows a job in a notebook, and IPython is not installed; in a terminal: shardyard watch JOB"
        ) from None
    shown: Shown = display(value, display_id=True)
    return shown


class Due:
    """A check that is true at most once per `every_s` seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._last = every_s, time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._every_s:
            return False
        self._last = now
        return True


def html(job: Job, metrics: Metrics | None) -> str:
    """The job's HTML, with its curve if there is one."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _facts(job)
    )
    curve = loss_svg(metrics) if metrics else ""
    return f"<div><b>{escape(job.name)}</b> <code>{escape(job.id)}</code><table>{rows}</table>{curve}</div>"


def _facts(job: Job) -> list[tuple[str, str]]:
    rows = [
        ("state", " · ".join(filter(None, [job.state, job.reason]))),
        ("layout", job.layout),
        ("batch", job.batch),
    ]
    if job.progress:
        now = job.progress
        rows.append(("step", f"{now.step:,} of {now.steps:,}"))
        rows += [("loss", f"{now.loss:.4f} nats/token")] if now.loss is not None else []
        rows += [("tokens/s", f"{now.tokens_per_s:,.0f}")] if now.tokens_per_s is not None else []
    if job.summary and job.summary.validation_loss is not None:
        rows.append(("validation loss", f"{job.summary.validation_loss:.4f} nats/token"))
    return [(name, value) for name, value in rows if value]


def loss_svg(metrics: Metrics) -> str:
    """The training loss as a line, validations as dots; empty below two finite points."""
    trained = _finite([(point.step, point.loss) for point in metrics.points])
    if len(trained) < 2:
        return ""
    validated = _finite([(one.step, one.loss) for one in metrics.evals])
    place = _scale([*trained, *validated])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, trained))
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_VALIDATED}"/>' for x, y in map(place, validated))
    label = f"Loss from {trained[0][1]:.4f} at step {trained[0][0]} to {trained[-1][1]:.4f} at step {trained[-1][0]}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'width="{_WIDE}" height="{_HIGH}" font-family="sans-serif" font-size="11">{_axes([*trained, *validated])}'
        f'<polyline fill="none" stroke="{_TRAINED}" stroke-width="1.5" points="{line}"/>{dots}</svg>'
    )


Point = tuple[int, float]


def _finite(points: Sequence[tuple[int, float | None]]) -> list[Point]:
    return [(step, loss) for step, loss in points if loss is not None and isfinite(loss)]


def _scale(points: Sequence[Point]) -> Callable[[Point], tuple[float, float]]:
    """The pixel coordinates of a point."""
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)

    def place(point: Point) -> tuple[float, float]:
        across = (point[0] - first) / ((last - first) or 1)
        up = (point[1] - low) / ((high - low) or 1)
        return _LEFT + across * (_WIDE - _LEFT - 10), 10 + (1 - up) * (_HIGH - _BELOW - 20)

    return place


def _axes(points: Sequence[Point]) -> str:
    """The axis labels: the extremes of both axes."""
    place = _scale(points)
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    texts = [
        f'<text x="{_LEFT - 6}" y="{place((first, loss))[1] + 4:.1f}" text-anchor="end" fill="{_INK}">{loss:.3f}</text>'
        for loss in dict.fromkeys((min(loss for _, loss in points), max(loss for _, loss in points)))
    ]
    for step, anchor in ((first, "start"), (last, "end")):
        x = place((step, points[0][1]))[0]
        texts.append(f'<text x="{x:.1f}" y="{_HIGH - 6}" text-anchor="{anchor}" fill="{_INK}">step {step:,}</text>')
    ground = _HIGH - _BELOW
    axis = f'<path d="M{_LEFT} 6V{ground}H{_WIDE - 10}" fill="none" stroke="{_INK}" stroke-width="1"/>'
    return axis + "".join(texts)
