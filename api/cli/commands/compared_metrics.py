"""What compared jobs logged: the last, lowest and highest values beside each other, with the difference to a baseline."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.markup import escape

from ....service.schemas.logged_metric import LoggedCurve
from ...client import Client
from ..terminal.screen import logged

#: Metrics that are compared if none is chosen, and that can be chosen: as many as one answer of curves has.
MOST_SHOWN: Final = 20
MOST_CHOSEN: Final = 24

Values = list[float | None]


@dataclass(frozen=True)
class ComparedMetric:
    """One metric of several jobs, in their order; None where a job has no such value. Values of ranks and of steps that are kept together
    are means in `last` and `at_step`, and counted each in the extremes."""

    last: Values
    last_step: list[int | None]
    lowest: Values
    highest: Values
    at_step: Values


def names_of(client: Client, jobs: Sequence[str]) -> tuple[list[str], bool]:
    """Names of metrics that most of the jobs (ids) logged, in their order, and whether there are more."""
    found = client.logged_names(jobs, limit=MOST_SHOWN)
    return sorted(one.name for one in found.items), found.more


def read(client: Client, jobs: Sequence[str], names: Sequence[str], at_step: int | None) -> dict[str, ComparedMetric]:
    """The metrics of these names that any of the jobs (ids) logged. Two requests per job at most, whatever the number of steps."""
    if not names:
        return {}
    curves = [client.logged_curves(job, names, buckets=2).series for job in jobs]
    at: list[dict[str, LoggedCurve]] = [{} for _ in jobs]
    if at_step is not None:
        at = [client.logged_curves(job, names, from_step=at_step, to_step=at_step, buckets=2).series for job in jobs]
    known = (name for name in names if any(name in one for one in curves))
    return {name: _compared([one.get(name) for one in curves], [one.get(name) for one in at]) for name in known}


def _compared(curves: Sequence[LoggedCurve | None], at: Sequence[LoggedCurve | None]) -> ComparedMetric:
    return ComparedMetric(
        last=[None if one is None else one.last for one in curves],
        last_step=[None if one is None else one.last_step for one in curves],
        lowest=[min(_known(one, "low"), default=None) for one in curves],
        highest=[max(_known(one, "high"), default=None) for one in curves],
        at_step=[next(iter(_known(one, "mean")), None) for one in at],
    )


def _known(curve: LoggedCurve | None, bound: str) -> list[float]:
    """The finite values of a bound of the buckets. Without extremes each bucket is its mean."""
    values: Values = [] if curve is None else getattr(curve, bound) or curve.mean
    return [value for value in values if value is not None]


def rows(found: dict[str, ComparedMetric], base: int, at_step: int | None) -> Iterator[tuple[str, ...]]:
    """Rows of a table: of each metric its last, lowest and highest value, and the one at a step if it was wanted."""
    for name, metric in found.items():
        kinds = {"last": metric.last, "lowest": metric.lowest, "highest": metric.highest}
        if at_step is not None:
            kinds = {f"at step {at_step:,}": metric.at_step, **kinds}
        for kind, values in kinds.items():
            cells = beside(values, base)
            if any(cells):
                yield (f"{escape(name)} {kind}", *(cell or "" for cell in cells))


def beside(values: Values, base: int, form: str | None = None) -> list[str | None]:
    """Values as text, each but the baseline's with its difference to it, absolute and as a share of it."""
    text: Callable[[float], str] = logged if form is None else lambda value: format(value, form)
    texts: list[str | None] = []
    for at, (value, delta) in enumerate(zip(values, deltas(values, base), strict=True)):
        if value is None or at == base or delta is None:
            texts.append(None if value is None else text(value))
        else:
            share = relative(delta, values[base])
            texts.append(f"{text(value)} ({delta:+.3g}{'' if share is None else f', {share:+.1%}'})")
    return texts


def deltas(values: Values, base: int) -> Values:
    """What each value is above the baseline's."""
    other = values[base]
    return [None if value is None or other is None else value - other for value in values]


def relative(delta: float, base: float | None) -> float | None:
    """A difference as a share of the baseline's value; None where that is 0."""
    return delta / abs(base) if base else None


def plain(found: dict[str, ComparedMetric], base: int) -> dict[str, Any]:
    """The metrics for JSON. `delta` is of the last values, `delta_share` the same as a share of the baseline's."""
    return {name: {**asdict(metric), **_differences(metric.last, base)} for name, metric in found.items()}


def _differences(last: Values, base: int) -> dict[str, Values]:
    above = deltas(last, base)
    return {"delta": above, "delta_share": [None if one is None else relative(one, last[base]) for one in above]}
