"""One sample of what each rank does, as it is stored and as it is given out, with the rank that makes the others wait.

Peers do an equal share of the work; a rank without peers is not compared here (the incident `straggler` holds it against its own past).
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.engine import RowMapping

from ..strategies.layout import Layout
from ..workers.straggler import MANY, WORTH, middle
from .records import RankSample, SlowRank
from .store.rank_samples import pack, unpack

_LISTS = ("step_s", "own_s", "waited_s", "memory")


def row_of(ts: float, attempt: int, layout: Layout, data: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a sample that a gang told. Raises KeyError, TypeError, ValueError for what is none."""
    lists = {name: list(data[name]) for name in _LISTS}
    world_size = len(lists["step_s"])
    if not world_size or any(len(values) != world_size for values in lists.values()):
        raise ValueError(f"lists of {sorted({len(values) for values in lists.values()})} ranks")
    packed = {**lists, "steps": int(data["steps"]), "memory_of": data.get("memory_of")}
    packed |= {"nodes": data.get("nodes") or [], "node_of": data.get("node_of") or [None] * world_size}
    if layout.world_size == world_size:  # else the job was given another one meanwhile
        packed |= {"axes": layout.degrees, "parts": [layout.part(rank) for rank in range(world_size)]}
    row = {"attempt": attempt, "step": int(data["step"]), "ts": ts, "world_size": world_size}
    return row | {"packed": pack(packed)}


def sample_of(row: RowMapping) -> RankSample:
    """The sample of a row of `rank_samples`."""
    lists = unpack(row["packed"])
    parts = lists.get("parts")
    return RankSample(
        n=row["position"],
        ts=row["ts"],
        attempt=row["attempt"],
        step=row["step"],
        steps=lists["steps"],
        axes=lists.get("axes"),
        parts=parts,
        **{name: lists[name] for name in _LISTS},
        memory_of=lists["memory_of"],
        nodes=lists["nodes"],
        node_of=lists["node_of"],
        slow=slow_rank(lists["own_s"], lists["waited_s"], parts or [0] * row["world_size"]),
    )


def slow_rank(own_s: Sequence[float | None], waited_s: Sequence[float | None], parts: Sequence[int]) -> SlowRank | None:
    """The rank that works longest beyond its peers' median and their spread, if that is a twentieth of the step at least."""
    known = {rank: seconds for rank, seconds in enumerate(own_s) if seconds is not None}
    if len(known) < 2:
        return None
    step_s = statistics.median(seconds + (waited_s[rank] or 0.0) for rank, seconds in known.items())
    peers: dict[int, list[int]] = defaultdict(list)
    for rank in known:
        peers[parts[rank]].append(rank)
    late = [found for ranks in peers.values() if (found := _latest({rank: known[rank] for rank in ranks}, step_s))]
    return max(late, key=lambda one: one.own_s - one.usual_s, default=None)


def _latest(own: Mapping[int, float], step_s: float) -> SlowRank | None:
    """Of ranks with equal work the slowest one, if it is worth a word."""
    if len(own) < 2:
        return None
    rank = max(own, key=lambda rank: own[rank])
    usual_s, spread = middle([seconds for other, seconds in own.items() if other != rank or len(own) >= MANY])
    more_s = own[rank] - usual_s
    if more_s <= max(spread, WORTH * step_s):
        return None
    return SlowRank(rank, own[rank], usual_s, f"rank {rank} computes {_in_words(more_s)} longer than its peers")


def _in_words(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{1000 * seconds:.0f} ms"
        if seconds >= 0.01
        else f"{1000 * seconds:.1f} ms"
    )
