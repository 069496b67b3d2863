"""What a gang reports of all its ranks at once."""

from typing import Any

from shardyard.service.policies.slow_ranks import WINDOWS


def rank_metrics_of(size: int, number: int = 1, busy_s: float = 0.05, slow: int | None = None) -> dict[str, Any]:
    """A `ranks` event of `size` ranks that work alike; of them one may be `slow`, on which the others wait."""
    own = [busy_s * (3 if rank == slow else 1) for rank in range(size)]
    waited = [busy_s if slow is None else max(own) - seconds for seconds in own]
    lists = {"step_s": [0.2] * size, "busy_s": own, "wait_s": waited, "memory": [1 << 30] * size}
    where = {"nodes": ["n"], "node_of": [0] * size}
    return {"step": number, "steps": 3, **lists, "memory_of": "resident", **where}


def slow_rank_events(size: int, number: int, slow: int) -> list[tuple[str, dict[str, Any]]]:
    """Events of as many samples as it takes until rank `slow` is known to be slow, the last one of step `number`."""
    return [("rank_metrics", rank_metrics_of(size, number - n, slow=slow)) for n in reversed(range(WINDOWS))]
