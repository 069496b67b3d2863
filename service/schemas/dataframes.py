"""Metrics as a `pandas.DataFrame`. Needs the extra `pandas`, which is imported on use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class Buckets(Protocol):
    """A metric by bucket: its mean, and where a bucket has several steps its extremes."""

    @property
    def mean(self) -> list[float | None]: ...

    @property
    def low(self) -> list[float | None] | None: ...

    @property
    def high(self) -> list[float | None] | None: ...


def of_steps(points: Sequence[Mapping[str, Any]], names: Sequence[str], validated: Mapping[int, float | None]) -> Any:
    """By step, with the validation losses beside them."""
    frame = _pandas().DataFrame(points, columns=list(names)).set_index("step")
    return frame.assign(validation_loss=[validated.get(step) for step in frame.index])


def of_curves(starts: Sequence[int], series: Mapping[str, Buckets]) -> Any:
    """By the first step of each bucket."""
    index = _pandas().Index(starts, name="step")
    return _pandas().DataFrame(dict(columns(series)), index=index, dtype=float)


def columns(series: Mapping[str, Buckets]) -> Iterable[tuple[str, list[float | None]]]:
    """Each series' mean under its name, and where a bucket has several steps its extremes beside it."""
    for name, one in series.items():
        yield name, one.mean
        if one.low is not None and one.high is not None:
            yield f"{name}_low", one.low
            yield f"{name}_high", one.high


def of_ranks(rows: Iterable[Mapping[str, Any]], axes: Sequence[str]) -> Any:
    """By attempt, step and rank, in the order of the rows."""
    names = ["attempt", "step", "rank", "ts", "step_s", "busy_s", "wait_s", "memory", "node", "slow"]
    frame = _pandas().DataFrame(list(rows), columns=[*names, *axes])
    return frame.set_index(["attempt", "step", "rank"])


def of_trials(rows: Sequence[Mapping[str, Any]]) -> Any:
    """By number: state, job, step, value and device-seconds, and a column for each parameter."""
    names = ("number", "state", "job", "step", "value", "device_s")
    flat = [{**{name: row[name] for name in names}, **(row["parameters"] or {})} for row in rows]
    return _pandas().DataFrame(flat, columns=None if flat else list(names)).set_index("number")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas; install it with: pip install 'shardyard[pandas]'") from None
    return pandas


def of_logged_curves(curves: Mapping[str, Any]) -> Any:
    """One column per metric, with the means by the first step of their buckets."""
    pandas = _pandas()
    columns = {name: pandas.Series(one.mean, index=one.starts, dtype="float64") for name, one in curves.items()}
    return pandas.DataFrame(columns).rename_axis("step")


def of_system(starts: Sequence[int], columns: Mapping[Any, list[float | None]]) -> Any:
    """By the time at which each bucket begins, in UTC."""
    pandas = _pandas()
    index = pandas.to_datetime(list(starts), unit="s", utc=True).rename("time")
    return pandas.DataFrame(columns, index=index, dtype=float)
