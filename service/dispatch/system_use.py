"""Stores what a gang's system samples say: the job's series, what its nodes use now, and what all its ranks use together.

Only the names of `system_metrics.py` are stored, whatever a gang sends.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import SystemEvent
from ...workers.messages.system_metrics import GPU, NODE, RANK
from ..store import system_samples

#: Maximum characters of a node's id.
_MOST_ID = 80
#: No metric has such values.
_MOST: Final = 1e30


async def keep(tx: AsyncConnection, job_id: str, samples: Sequence[tuple[float, SystemEvent]]) -> dict[str, Any]:
    """Store samples, each with its unix seconds. Returns the columns of the job's row that change."""
    if not samples:
        return {}
    now = time.time()
    # The newest sample says which older ones are dropped: with a clock that is a month ahead that would be all.
    placed = [(min(max(ts, 0.0), now), event) for ts, event in samples]
    await system_samples.append(tx, job_id, [(ts, _series(event)) for ts, event in placed])
    uses = {node: use for _, one in placed for node, use in (_nodes(one) | _gpus(one)).items()}
    await system_samples.put_nodes(tx, uses, now)
    newest, event = placed[-1]
    use = {"cpu": _sum(event, "cpu"), "memory": _sum(event, "memory"), "gpu": _mean(event, "gpu_utilization")}
    return {"resource_use": {"at": newest, **use}} if any(value is not None for value in use.values()) else {}


def _series(event: SystemEvent) -> dict[str, float]:
    """Name → value, such as `rank/0/cpu`."""
    found = {f"node/{node}/{name}": value for node, use in _nodes(event).items() for name, value in use.items()}
    for name in RANK:
        for rank, value in enumerate(event.ranks.get(name, ())):
            if value is not None and _is_stored(value):
                found[f"rank/{rank}/{name}"] = value
    return found


def _nodes(event: SystemEvent) -> dict[str, dict[str, float]]:
    return {
        node: {name: value for name, value in use.items() if name in NODE and _is_stored(value)}
        for node, use in event.nodes.items()
        if 0 < len(node) <= _MOST_ID and "/" not in node
    }


def _gpus(event: SystemEvent) -> dict[str, dict[str, float]]:
    """By `node/gpu`. A GPU that Ray has under a longer name than is stored is left out."""
    return {
        gpu: {name: value for name, value in use.items() if name in GPU and _is_stored(value)}
        for gpu, use in event.nodes.items()
        if gpu.count("/") == 1 and len(gpu) <= _MOST_ID
    }


def _known(event: SystemEvent, name: str) -> list[float]:
    return [value for value in event.ranks.get(name, ()) if value is not None and _is_stored(value)]


def _is_stored(value: float) -> bool:
    """Whether sums of it are finite in single precision, and so in JSON."""
    return abs(value) < _MOST


def _sum(event: SystemEvent, name: str) -> float | None:
    values = _known(event, name)
    return sum(values) if values else None


def _mean(event: SystemEvent, name: str) -> float | None:
    values = _known(event, name)
    return sum(values) / len(values) if values else None
