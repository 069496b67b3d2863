"""All legal layouts of up to eight ranks, as data, and draws from them by a seed."""

import functools
import itertools
import math
import random
from collections.abc import Iterator
from typing import Any, get_args

from shardyard.strategies.layout import AXES, DELAYED, Layout, Refusal, Schedule
from shardyard.workers.spec import TrainSpec

MOST_RANKS = 8

#: What the grid varies; an axis at its default counts as absent.
CHOICES: dict[str, tuple[Any, ...]] = {
    "pipeline": (1, 2, 4),
    "schedule": tuple(
        schedule for schedule in get_args(Schedule) if schedule not in DELAYED
    ),  # these equal another loop
    "data": (1, 2, 3, 4, 8),
    "zero": (0, 1, 2, 3),
    "shard": (None, 2, 4),
    "context": (1, 2, 4),
    "ulysses": (1, 2),
    "expert": (1, 2, 4),
    "tensor": (1, 2),
    "sequence": (True, False),
    "micro_batch": (None, 1),
}
DEGREES = ("pipeline", "data", "context", "expert", "tensor")


def model_of(layout: dict[str, Any]) -> dict[str, Any]:
    """A small model that this layout can be asked of: experts need a mixture. Every other one shares its embedding with its head."""
    numbers = {"preset": "nano", "dim": 32, "heads": 4, "kv_heads": 4, "hidden": 64, "layers": 8}
    numbers["tied"] = len(layout) % 2 == 1
    return {"family": "moe" if layout.get("expert", 1) > 1 else "llama", **numbers}


def layouts() -> Iterator[dict[str, Any]]:
    """Every legal layout, without the fields that stand at their defaults, each once."""
    fields = [name for name in CHOICES if name in Layout.model_fields]
    seen = set()
    for values in itertools.product(*(CHOICES[name] for name in fields)):
        given = dict(zip(fields, values, strict=True))
        if math.prod(given[axis] for axis in AXES) > MOST_RANKS:
            continue
        layout = _without_idle({k: v for k, v in given.items() if v != Layout.model_fields[k].default})
        key = tuple(sorted(layout.items(), key=str))
        if key not in seen and _legal(layout):
            seen.add(key)
            yield layout


@functools.cache
def _by_axes() -> dict[int, tuple[dict[str, Any], ...]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for layout in layouts():
        found.setdefault(axes(layout), []).append(layout)
    return {count: tuple(some) for count, some in found.items()}


def _without_idle(layout: dict[str, Any]) -> dict[str, Any]:
    """Fields without effect say nothing: a schedule without a pipeline, sequence parallelism without tensor."""
    idle = {"schedule": "pipeline", "sequence": "tensor", "ulysses": "context"}
    return {k: v for k, v in layout.items() if k not in idle or idle[k] in layout}


def _legal(layout: dict[str, Any], **changes: Any) -> bool:
    try:
        spec = TrainSpec.model_validate({**small(layout), **changes})
        spec.check()
    except (Refusal, ValueError):
        return False
    return 1 < spec.layout.world_size <= MOST_RANKS


def small(layout: dict[str, Any]) -> dict[str, Any]:
    """The train spec of the grid on that layout, but for its data."""
    batch = 12 if layout.get("data") == 3 else 16
    return {"model": model_of(layout), "data": {"seq_len": 32}, "layout": layout, "global_batch": batch, "steps": 3}


def axes(layout: dict[str, Any]) -> int:
    """How many degrees are above one."""
    return sum(layout.get(name, 1) > 1 for name in DEGREES)


def draw(seed: int, count: int) -> list[dict[str, Any]]:
    """`count` different layouts: singles, pairs, triples and 4-D products in turn, as long as there are any."""
    rng = random.Random(seed)
    pools = {count: list(some) for count, some in _by_axes().items()}
    for pool in pools.values():
        rng.shuffle(pool)
    turns = itertools.cycle(sorted(pools))
    drawn: list[dict[str, Any]] = []
    while len(drawn) < count and any(pools.values()):
        pool = pools[next(turns)]
        if pool:
            drawn.append(pool.pop())
    return drawn


def draw_pairs(seed: int, count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """`count` pairs of different layouts that the same model and `PAIRS_BATCH` suit: one that writes a checkpoint, one that reads it."""
    waiting = draw(seed, 3 * count)
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    while waiting and len(pairs) < count:
        writer = waiting.pop(0)
        reader = next((other for other in reversed(waiting) if _suit(writer, other)), None)
        if reader is not None:
            waiting.remove(reader)
            pairs.append((writer, reader))
    return pairs


#: A global batch that all data degrees divide.
PAIRS_BATCH = 24


def pair_model(writer: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
    """A mixture where one of the two spreads experts."""
    return max((model_of(writer), model_of(reader)), key=lambda model: model["family"] == "moe")


def _suit(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    changes = {"model": pair_model(writer, reader), "global_batch": PAIRS_BATCH}
    return writer != reader and all(_legal(layout, **changes) for layout in (writer, reader))
