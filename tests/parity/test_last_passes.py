"""Gradients that are reduced during a stage's last backward pass are those that are reduced after the schedule, to the bit.

Parameters that ZeRO-1 and ZeRO-2 have updated are gathered meanwhile: those of later blocks are in transit when a block begins.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.in_transit import coming_at_blocks, sent_during_passes
from harness.models import GPT2, LLAMA
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

#: Small buckets: some of several parameters, and more of them than may be in transit. A probe (step 2) and the first comparison of replicas
#: (step 3) wait for all of them; step 5 begins with some in transit.
SMALL = {"overlap": {"bucket_mb": 0.02, "prefetch": 2}, "eval": {"batches": 1}, "steps": 5}
TIED = {"model": {**GPT2, "layers": 5, "tied": True}}
NARROW = {"precision": {"compute": "bf16", "gradients": "compute"}}


def _layout(schedule: str, zero: int, **more: int) -> dict[str, Any]:
    return {"pipeline": 2, "schedule": schedule, "data": 2, "zero": zero, **more}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1f1b-zero1": (_layout("1f1b", 1), {"precision": "bf16"}),
    "interleaved-zb-zero2": (_layout("interleaved-zb", 2), {"precision": "fp32"}),
    "1f1b-zero0": (_layout("1f1b", 0), {"precision": "fp32"}),
    "gpipe-zero0-bf16": (_layout("gpipe", 0), {"precision": "bf16"}),
    "interleaved-zero1-narrow": (_layout("interleaved", 1), NARROW),
    "zbv-zero1-fp16": (_layout("zbv", 1), {"precision": "fp16"}),
    "zbv-zero2-tied": (_layout("zbv", 2), {"precision": "bf16", **TIED}),
    "dualpipev-zero1-tied-narrow": (_layout("dualpipev", 1), {**NARROW, **TIED}),
    "zb-h1-zero2": (_layout("zb-h1", 2), {"precision": "bf16"}),
    "zb-h2-zero1-narrow": (_layout("zb-h2", 1), NARROW),
    "1f1b-zero1-tied": (_layout("1f1b", 1), {"precision": "fp32", **TIED}),
    "1f1b-zero2-tensor2": (_layout("1f1b", 2, tensor=2), {"precision": "bf16"}),
    "1f1b-zero1-experts": (
        _layout("1f1b", 1, expert=2),
        {"model": {**LLAMA, "family": "moe", "experts": 4, "top_k": 2}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_after_the_schedule(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = CASES[name]
    spec = TrainSpec.model_validate(make_spec(layout, **{**SMALL, **changes}))
    run = Run(job=name, train=spec, checkpoints=root / "checkpoints" / name, cache=root / "cache")
    for during, after in spawn(both_ways, spec.layout.world_size, run.model_dump_json()):
        assert during["started"] > after["started"] == 0
        assert (during["coming"] > 0) == (spec.layout.zero > 0)
        assert during["losses"] == after["losses"] and during["norms"] == after["norms"]
        assert during["shards"] == after["shards"]


def both_ways(rank: int, world: int, port: int, orders: str) -> Any:
    """What this rank trains if gradients are reduced during the last passes, and if they are after the schedule."""
    run = Run.model_validate_json(orders)
    device = group(rank, world, port)
    return [trained(run, device, during) for during in (True, False)]


def trained(run: Run, device: Any, during: bool) -> dict[str, Any]:
    """The steps' losses and norms, the bits of all param shards, how many buckets were sent before the schedules ended, and how many
    calls that gather parameters were in transit when a block began."""
    from contextlib import nullcontext

    from shardyard.strategies.data_parallel.buckets import BucketOrder
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.instruments import Instruments

    given = BucketOrder.finishing
    if not during:
        setattr(BucketOrder, "finishing", lambda *_: nullcontext())  # noqa: B010
    try:
        built = allocate(run, make_mesh(run.train.layout, device))
        started, coming = sent_during_passes(built.parallel), coming_at_blocks(built.parallel)
        events: list[Any] = []
        assemble(built, lambda kind, data: events.append((kind, data)), Instruments()).run()
    finally:
        setattr(BucketOrder, "finishing", given)  # noqa: B010
    steps = [data for kind, data in events if kind == "step"]
    return {
        "started": sum(started),
        "coming": sum(coming),
        "losses": [data.get("loss") for data in steps],
        "norms": [data.get("grad_norm") for data in steps],
        "shards": [(shard.name, shard.offset, shard.tensor.numpy().tobytes()) for shard in built.parallel.data.shards],
    }
