"""All legal layouts of up to eight ranks, as data, and draws from them by a seed."""

import functools
import itertools
import math
import random
from collections.abc import Iterator
from typing import Any, get_args

from shardyard.strategies.layout import DELAYED, Refusal, Schedule
from shardyard.workers.spec import TrainSpec

MOST_RANKS = 8

#: The degrees that the grid varies. An axis at its default counts as absent.
DEGREES: dict[str, tuple[int, ...]] = {
    "pipeline": (1, 2, 4),
    "data": (1, 2, 3, 4, 8),
    "context": (1, 2, 4),
    "expert": (1, 2, 4),
    "tensor": (1, 2, 4, 8),
}
SCHEDULES = get_args(Schedule)
#: What a step may do beside its layout without another result.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "full"},
    {"recompute": "selective"},
    {"recompute": "every-2"},
    {"offload": {"optimizer": 0.5}},
)
#: fp64, in which all must be equal, twice as often as any other.
PRECISIONS = ("fp64", "fp64", "fp32", "bf16", "fp16")


def model_of(layout: dict[str, Any]) -> dict[str, Any]:
    """A small model that this layout can be asked of: experts need a mixture. Every other one shares its embedding with its head."""
    numbers = {"preset": "nano", "dim": 32, "heads": 4, "kv_heads": 4, "hidden": 64, "layers": 8}
    numbers["tied"] = len(layout) % 2 == 1
    return {"family": "moe" if layout.get("expert", 1) > 1 else "llama", **numbers}


def layouts() -> Iterator[dict[str, Any]]:
    """Every legal layout, without the fields that stand at their defaults, each once."""
    for values in itertools.product(*DEGREES.values()):
        degrees = dict(zip(DEGREES, values, strict=True))
        if math.prod(degree for axis, degree in degrees.items() if axis != "expert") > MOST_RANKS:
            continue
        parts = (_pipelines(**degrees), _replicas(**degrees), _contexts(**degrees), _tensors(**degrees), _batches())
        for chosen in itertools.product(*map(list, parts)):
            layout = {axis: degree for axis, degree in degrees.items() if degree > 1}
            for fields in chosen:
                layout |= fields
            if _legal(layout):
                yield layout


def _pipelines(pipeline: int, **_others: int) -> Iterator[dict[str, Any]]:
    """Every schedule, PipeDream's in both of its kinds, and stages by measured times and by hand."""
    for schedule in SCHEDULES if pipeline > 1 else ("1f1b",):
        yield {} if schedule == "1f1b" else {"schedule": schedule}
    if pipeline > 1:
        yield {"schedule": "pipedream", "vertical_sync": True}
    if pipeline == 2:
        yield from ({"pipeline": {"stages": 2, **split}} for split in ({"split": "profile"}, {"blocks": [3, 5]}))


def _replicas(data: int, context: int, tensor: int, **_others: int) -> Iterator[dict[str, Any]]:
    """What shards the state of replicas, among them grids of eight ranks together, or holds it for them."""
    yield {}
    if data * context > 1 or tensor == 8:
        yield from ({"zero": zero} for zero in (1, 2, 3))
        yield from ({"zero": 3, "shard": shard} for shard in (2, 4))
        yield {"zero": 3, "zero_plus_plus": {"secondary": 2}}
    if data > 1:
        yield from ({"parameter_server": {"servers": servers}} for servers in (1, 2))


def _contexts(context: int, **_others: int) -> Iterator[dict[str, Any]]:
    """Ulysses, rings of every kind, and both in either order."""
    for ulysses in (degree for degree in (1, 2, 4) if context % degree == 0):
        spread = {"ulysses": ulysses} if ulysses > 1 else {}
        yield spread
        if ulysses == context:
            continue
        kinds: list[dict[str, Any]] = [{"context_method": kind} for kind in ("all-gather", "ring-self-attention")]
        if context // ulysses > 2:
            kinds.append({"ring_window": 2})
        yield from (spread | kind for kind in kinds)
        if ulysses > 1:
            yield from (spread | kind | {"context_inner": "ring"} for kind in ({}, *kinds))


def _tensors(tensor: int, **_others: int) -> Iterator[dict[str, Any]]:
    """In one dimension with and without sequence parallelism, on a grid, on grids with a depth, and on a cube.

    Of these three no rank has all of a micro-batch, which needs at least as many sequences as it is divided into.
    """
    yield {}
    if tensor > 1:
        yield {"sequence": False}
    shapes = {4: {"2d": [2, 2]}, 8: {"2.5d": [2, 2, 2], "3d": [2, 2, 2]}}.get(tensor, {})
    for mode, shape in shapes.items():
        yield from ({"tensor": {"mode": mode, "shape": shape}, **batch} for batch in ({}, {"micro_batch": 4}))


def _batches() -> Iterator[dict[str, Any]]:
    yield from ({}, {"micro_batch": 1})


@functools.cache
def _by_degrees() -> dict[int, tuple[tuple[dict[str, Any], ...], ...]]:
    """Number of axes → all layouts of that number, grouped by their degrees and by whether gradients are late."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for layout in layouts():
        degrees = tuple(str(layout.get(name)) for name in DEGREES)
        found.setdefault((*degrees, is_delayed(layout)), []).append(layout)
    counts = {axes(some[0]) for some in found.values()}
    return {count: tuple(tuple(some) for some in found.values() if axes(some[0]) == count) for count in counts}


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
    """How many degrees are above one. Fields at their defaults are left out of a layout."""
    return sum(name in layout for name in DEGREES)


def is_delayed(layout: dict[str, Any]) -> bool:
    """Whether the layout equals a loop whose gradients are late, in the place of one process."""
    return layout.get("schedule") in DELAYED


def draw_options(layout: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a step on that layout does beside it: one of `OPTIONS` and one of `PRECISIONS` that are legal there together.

    A mixture computes in fp64: what others round may choose another expert.
    """
    precisions = ("fp64",) if layout.get("expert", 1) > 1 else PRECISIONS
    drawn = ({**options, "precision": precision} for precision in precisions for options in OPTIONS)
    return random.Random(f"{seed} {layout}").choice([options for options in drawn if _legal(layout, **options)])


def draw_recipe(layout: dict[str, Any], seed: int) -> tuple[str, bool]:
    """For a layout whose gradients are late: one of the textbook's models, and whether gradients are clipped.

    Without clipping the ranks of its pipeline end a step at different times.
    """
    rng = random.Random(f"recipe {seed} {layout}")
    return rng.choice(("llama", "gpt2", "qwen3")), rng.random() < 0.5


def draw(seed: int, count: int) -> list[dict[str, Any]]:
    """`count` different layouts: singles, pairs, triples and 4-D products in turn, as long as there are any.

    Degrees are drawn first, so that those with many variants are not drawn more often.
    """
    rng = random.Random(seed)
    pools = {count: [rng.sample(some, len(some)) for some in groups] for count, groups in _by_degrees().items()}
    for pool in pools.values():
        rng.shuffle(pool)
    turns = itertools.cycle(sorted(pools))
    drawn: list[dict[str, Any]] = []
    while len(drawn) < count and any(pools.values()):
        pool = pools[next(turns)]
        if pool:
            group = pool.pop(0)
            drawn.append(group.pop())
            pool.extend([group] if group else [])
    return drawn


def draw_pairs(seed: int, count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """`count` pairs of different layouts that the same model and `PAIRS_BATCH` suit: one that writes a checkpoint, one that reads it.

    At most one of the two has late gradients. `tests/parity/test_resumed_delays.py` has those of which both have.
    """
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
    if is_delayed(writer) and is_delayed(reader):
        return False
    return writer != reader and all(_legal(layout, **changes) for layout in (writer, reader))
