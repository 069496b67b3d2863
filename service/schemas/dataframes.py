"""Metrics as a `pandas.DataFrame`. Needs the extra `pandas`, which is imported on use."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .curve import Curves
    from .rank import RankMetrics, RankMetricsPage
    from .step import Metrics


def of_metrics(metrics: "Metrics") -> Any:
    """By step."""
    from .step import Step

    columns = list(Step.model_fields)
    frame = _pandas().DataFrame([point.model_dump() for point in metrics.points], columns=columns).set_index("step")
    validated = {one.step: one.loss for one in metrics.evals}
    return frame.assign(validation_loss=[validated.get(step) for step in frame.index])


def of_curves(curves: "Curves") -> Any:
    """By the first step of each bucket."""
    index = _pandas().Index(curves.starts, name="step")
    return _pandas().DataFrame(dict(columns(curves)), index=index, dtype=float)


def columns(curves: "Curves") -> Iterable[tuple[str, list[float | None]]]:
    """Each series' mean under its name, and where a bucket has several steps its extremes beside it."""
    for name, one in curves.series.items():
        yield name, one.mean
        if one.low is not None and one.high is not None:
            yield f"{name}_low", one.low
            yield f"{name}_high", one.high


def of_ranks(ranks: "RankMetricsPage") -> Any:
    """By step and rank, the oldest first."""
    names = ["attempt", "step", "rank", "ts", "step_s", "busy_s", "wait_s", "memory", "node", "slow"]
    rows = [row for sample in reversed(ranks.items) for row in _rows(sample)]
    axes = dict.fromkeys(axis for sample in ranks.items for axis in sample.axes or {})
    frame = _pandas().DataFrame(rows, columns=[*names, *axes])
    return frame.set_index(["attempt", "step", "rank"])


def _rows(sample: "RankMetrics") -> Iterable[dict[str, Any]]:
    for rank, step_s in enumerate(sample.step_s):
        node = sample.node_of[rank]
        yield {
            "attempt": sample.attempt,
            "step": sample.step,
            "rank": rank,
            "ts": sample.ts,
            "step_s": step_s,
            "busy_s": sample.busy_s[rank],
            "wait_s": sample.wait_s[rank],
            "memory": sample.memory[rank],
            "node": None if node is None else sample.nodes[node],
            "slow": sample.slow is not None and sample.slow.rank == rank,
            **sample.place(rank),
        }


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas; install it with: pip install 'shardyard[pandas]'") from None
    return pandas
