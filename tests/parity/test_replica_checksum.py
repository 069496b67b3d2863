"""On every layout replicas hold the same bits, and one that is flipped names its rank and its parameter."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import LLAMA, MIXTURE
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

STEPS = 4
AT = 2

#: (layout, changes, rank, parameter whose bit flips there, who is named, whether for certain)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int, str, tuple[int, ...], bool]] = {
    "data4": ({"data": 4}, {}, 2, "norm.weight", (2,), True),
    "zero1-bf16": ({"data": 3, "zero": 1}, {"precision": "bf16"}, 0, "blocks.1.", (0,), True),
    "data2": ({"data": 2}, {}, 1, "embed.weight", (0, 1), False),
    "zero2": ({"data": 4, "zero": 2}, {}, 3, "embed.weight", (3,), True),
    "tensor2-data2": ({"tensor": 2, "data": 2}, {}, 1, "norm.weight", (1,), True),
    "hsdp": ({"data": 4, "zero": 3, "shard": 2}, {}, 3, "norm.weight", (1, 3), False),
    "1f1b2-data2": ({"pipeline": 2, "data": 2, "zero": 1}, {}, 3, "blocks.3.", (2, 3), False),
    "experts2": ({"data": 4, "expert": 2}, {"model": {**MIXTURE, "layers": 2}}, 3, "experts.", (1, 3), False),
}


#: Factories of a module over a frozen base: one that is the same on all ranks, and one that each of them draws for itself.
OVER_A_BASE = """
import numpy as np
import torch
from torch import nn


class OverABase(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        self.base = nn.Parameter(base, requires_grad=False)

    def forward(self, tokens):
        return self.head(torch.tanh(self.embed(tokens) @ self.base))


def same():
    return OverABase(torch.eye(8))


def drawn():
    return OverABase(torch.from_numpy(np.random.default_rng().standard_normal((8, 8))).float())
"""


@pytest.mark.parametrize("name", CASES)
def test_a_flipped_bit_names_its_rank(name: str, root: Path, make_spec: Make) -> None:
    layout, changes, rank, parameter, named, certain = CASES[name]
    reported = _outcomes(name, root, make_spec(layout, **_small(layout) | changes), rank, parameter)
    assert len({message for message, _ in reported}) == 1, reported
    message, facts = reported[0]
    assert message.startswith(f"after step {AT} replicas of ") and f"after step {AT - 1} all were equal" in message
    assert (facts["ranks"], facts["rank"]) == (list(named), named[0] if certain else None), reported
    assert facts["cause"] == "replica_mismatch" and any(parameter in name for name in facts["parameters"]), facts


@pytest.mark.parametrize("zero", [0, 2])
def test_a_flipped_bit_of_a_frozen_weight_names_its_rank(zero: int, root: Path, make_spec: Make) -> None:
    """Of two ranks both, for there is no majority."""
    ((message, facts), _) = _over_a_base("same", zero, 1, root, make_spec)
    assert message.startswith(f"after step {AT} replicas of base differ: ranks 0, 1 differ, "), message
    assert (facts["cause"], facts["ranks"], facts["parameters"]) == ("replica_mismatch", [0, 1], ["base"])


def test_frozen_weights_that_the_factory_draws_differently_are_found(root: Path, make_spec: Make) -> None:
    ((message, facts), _) = _over_a_base("drawn", 0, -1, root, make_spec)
    assert message.startswith("after step 1 replicas of ") and "never been compared before" in message
    assert facts["cause"] == "replica_mismatch" and "base" in facts["parameters"]


def _over_a_base(factory: str, zero: int, rank: int, root: Path, make_spec: Make) -> list[Any]:
    """As `_outcomes`, on two replicas of a module over a frozen base."""
    layout, model = {"data": 2, "zero": zero}, {"import": f"over_a_base:{factory}", "code": str(root)}
    (root / "over_a_base.py").write_text(OVER_A_BASE)
    spec = make_spec(layout, **_small(layout) | {"model": model})
    return _outcomes(f"base-{factory}-{zero}", root, spec, rank, "base")


@pytest.mark.parametrize("layout", [{"data": 2, "tensor": 2, "zero": 1}, {"data": 2, "zero": 3}, {}], ids=str)
def test_without_a_fault_nothing_differs(layout: dict[str, Any], root: Path, make_spec: Make) -> None:
    for every in (1, None):
        spec = make_spec(layout, **_small(layout) | {"replica_check": {"every": every}})
        assert set(_outcomes(f"even-{every}", root, spec, -1, "")) == {("", None)}


def test_sums_in_two_orders_are_one_on_tensor_ranks(root: Path, make_spec: Make) -> None:
    """The head has 129 rows on one and 128 on the other: what is behind it in a bucket is summed at other places, in another order.

    With these widths that changes the last norm's gradient.
    """
    layout, model = {"data": 3, "tensor": 2}, {**LLAMA, "layers": 1, "hidden": 52, "vocab": 257}
    spec = make_spec(layout, **_small(layout) | {"model": model, "steps": 2})
    assert _outcomes("two-orders", root, spec, -1, "") == [("", None)] * 6


def _small(layout: dict[str, Any]) -> dict[str, Any]:
    small = {"steps": STEPS, "eval": {"batches": 1}, "probe": {"every": None}, "precision": "fp32"}
    return small | {"replica_check": {"every": 1}, "global_batch": 4 * layout.get("data", 1)}


def _outcomes(name: str, root: Path, spec: dict[str, Any], rank: int, parameter: str) -> list[Any]:
    """By rank what was raised: its message and facts."""
    run = Run(job=name, train=TrainSpec.model_validate(spec), checkpoints=root / "alike" / name, cache=root / "cache")
    return spawn(flipped, run.train.layout.world_size, run.model_dump_json(), rank, parameter)


def flipped(rank: int, world: int, port: int, orders: str, faulty: int, parameter: str) -> tuple[str, Any]:
    """Train; after step AT rank `faulty` has one bit flipped of the first parameter with `parameter` in its name."""
    import torch
    from torch.distributed.tensor import DTensor

    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.callbacks.replica_check import ReplicasDiffer
    from shardyard.workers.trainer.instruments import Instruments

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    publish, steps = built.parallel.data.publish, itertools.count(1)

    def publish_and_flip() -> None:
        publish()
        if next(steps) == AT and rank == faulty:
            built.parallel.data.settle()
            named = (pair for part in built.parallel.parts for pair in part.named_parameters())
            found = next(value.detach() for name, value in named if parameter in name)
            own = found.to_local() if isinstance(found, DTensor) else found
            own.view(torch.uint8).view(-1)[5] ^= 1

    built.parallel.data.publish = publish_and_flip  # type: ignore[method-assign]
    try:
        assemble(built, lambda *_: None, Instruments()).run()
    except ReplicasDiffer as error:
        return str(error), error.facts
    return "", None
