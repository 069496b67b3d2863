"""Events in tests: what a test does not care about gets a neutral value, so that every event is a whole one."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from shardyard.workers.messages.event import GANG_KINDS, MetricsEvent, to_json
from shardyard.workers.messages.metric_block import MetricBlock, packed


def whole_event(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """`data` with a neutral value for each required field of a gang's event that it lacks; of an unknown kind as it is."""
    return {**_neutral(kind), **data} if kind in GANG_KINDS else data


def logged(
    points: Mapping[str, Sequence[tuple[int, float | None]]], rank: int = 0, generation: int = 1, restarts: int = 0
) -> tuple[str, Any]:
    """The event of values that a program logged: by name the pairs of step and value, None for one that is not finite."""
    blocks = [
        MetricBlock(
            (name,), tuple(step for step, _ in pairs), packed(array("d", [_float(value) for _, value in pairs]))
        )
        for name, pairs in points.items()
    ]
    event = MetricsEvent(rank=rank, generation=generation, blocks=tuple(blocks), restarts=restarts)
    return "metrics", to_json(event)


def _float(value: float | None) -> float:
    return float("nan") if value is None else value


@cache
def _neutral(kind: str) -> Mapping[str, Any]:
    hints = get_type_hints(GANG_KINDS[kind])
    return {one.name: _value(hints[one.name]) for one in fields(GANG_KINDS[kind]) if one.default is MISSING}


def _value(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    made = get_origin(hint) or hint
    return made() if made in (int, float, str, bool, tuple) else {}
