"""One sample of each rank's activity, as stored and as returned, with the rank that makes the others wait (`slow_ranks.py`)."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.engine import RowMapping

from ....strategies.layout import Layout
from ....workers.messages.event import RankMetricsEvent
from ...policies.slow_ranks import Marks, marked, slow_rank
from ...schemas.rank import RankMetrics
from ..rank_samples import pack, unpack

_LISTS = ("step_s", "busy_s", "wait_s", "memory")


def row_of(
    ts: float, attempt: int, layout: Layout | None, event: RankMetricsEvent, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The row of a gang's sample; `before` is the job's row before it. `layout`: None if it is not known.

    Raises ValueError for lists of different lengths.
    """
    lists = {name: list(getattr(event, name)) for name in _LISTS}
    world_size = len(lists["step_s"])
    if not world_size or any(len(values) != world_size for values in lists.values()):
        raise ValueError(f"lists of {sorted({len(values) for values in lists.values()})} ranks")
    packed: dict[str, Any] = {**lists, "steps": event.steps, "memory_of": event.memory_of}
    packed |= {} if event.timed_steps is None else {"timed_steps": event.timed_steps}
    packed |= {"nodes": list(event.nodes), "node_of": list(event.node_of) or [None] * world_size}
    if layout is not None and layout.world_size == world_size:  # otherwise the job has another layout by now
        packed |= {"parts": [layout.part(rank) for rank in range(world_size)]}
        packed |= {} if layout.servers else {"axes": layout.degrees}  # parameter servers have no coordinates
    row = {"attempt": attempt, "step": event.step, "ts": ts, "world_size": world_size}
    marks = marked(_marks(row, before), lists["busy_s"], lists["wait_s"], packed.get("parts") or [0] * world_size)
    return row | {"packed": pack(packed | {"marks": marks.as_json()})}


def _marks(row: Mapping[str, Any], before: Mapping[str, Any] | None) -> Marks:
    """The marks of the sample before, if it was of the same ranks."""
    if before is None or any(row[name] != before[name] for name in ("attempt", "world_size")):
        return Marks()
    return Marks.of_json(unpack(before["packed"]).get("marks") or {})


def sample_of(row: RowMapping) -> RankMetrics:
    """The sample of a row of `rank_samples`."""
    lists = unpack(row["packed"])
    parts = lists.get("parts")
    return RankMetrics(
        position=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        step=row["step"],
        steps=lists["steps"],
        timed_steps=lists.get("timed_steps"),
        axes=lists.get("axes"),
        parts=parts,
        **{name: lists[name] for name in _LISTS},
        memory_of=lists["memory_of"],
        nodes=lists["nodes"],
        node_of=lists["node_of"],
        slow=slow_rank(
            Marks.of_json(lists.get("marks") or {}), lists["busy_s"], lists["wait_s"], parts or [0] * row["world_size"]
        ),
    )
