"""A rank whose numbers stop being finite is named, with the first parameter or module, before the sums hide it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

#: (layout, what goes wrong, its rank, what is named)
CASES: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "gradient-data2": ({"data": 2}, "gradient", 1, "the gradient of blocks.1."),
    "output-zero3": ({"data": 2, "zero": 3}, "output", 1, "the output of blocks.1."),
    "gradient-zero2-tensor2": ({"data": 2, "tensor": 2, "zero": 2}, "gradient", 3, "the gradient of blocks.1."),
    "output-1f1b2": ({"pipeline": 2}, "output", 0, "the output of blocks.1."),
    "output-2bw2": ({"pipeline": 2, "schedule": "2bw"}, "output", 0, "the output of blocks.1."),
    "output-pipedream2": ({"pipeline": 2, "schedule": "pipedream"}, "output", 0, "the output of blocks.1."),
    "output-interleaved2": ({"pipeline": 2, "schedule": "interleaved"}, "output", 1, "the output of blocks.1."),
    "output-zbv2": ({"pipeline": 2, "schedule": "zbv"}, "output", 1, "the output of blocks.1."),
    "output-context2": ({"context": 2}, "output", 1, "the output of blocks.1."),
    "output-tensor2": ({"tensor": 2}, "output", 1, "the output of blocks.1."),
    "gradient-interleaved2": ({"pipeline": 2, "schedule": "interleaved"}, "gradient", 1, "the gradient of blocks.1."),
    "gradient-2bw2": ({"pipeline": 2, "schedule": "2bw"}, "gradient", 0, "the gradient of blocks.1."),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rank_is_named(name: str, root: Path, make_spec: Make) -> None:
    layout, what, rank, named = CASES[name]
    spec = make_spec(layout, steps=3, precision="fp32", global_batch=8, probe={"every": None})
    run = Run(job=name, train=TrainSpec.model_validate(spec), checkpoints=root / "blame" / name, cache=root / "cache")
    reported = spawn(failed, run.train.layout.world_size, run.model_dump_json(), what, rank)
    assert len(set(map(repr, reported))) == 1, reported
    message, facts = reported[0]
    assert f"first in {named}" in message and f" on rank {rank}" in message, message
    assert (facts["rank"], facts["ranks"]) == (rank, [rank]) and facts["parameter"], facts


def failed(rank: int, world: int, port: int, orders: str, what: str, faulty: int) -> tuple[str, Any]:
    """Train until a rank's gradient or output, in block 1, is not finite any more; returns what was raised."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.param_shard import parameters
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.callbacks.nan_attribution import Diverged
    from shardyard.workers.trainer.instruments import Instruments

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    if rank == faulty and what == "gradient":
        value = next(p.value for p in parameters(built.parallel.parts, built.mesh) if p.name.startswith("blocks.1."))
        value.register_hook(lambda grad: grad * float("nan"))
    if rank == faulty and what == "output":
        block = next(m for part in built.parallel.parts for n, m in part.named_modules() if n.startswith("blocks.1."))
        block.register_forward_hook(lambda _, __, output: output * float("nan"))
    try:
        assemble(built, lambda *_: None, Instruments()).run()
    except Diverged as error:
        return str(error), error.facts
    raise AssertionError("it did not fail")
